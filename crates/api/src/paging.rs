//! Lists: `limit` and `cursor` in, `data` and `next_cursor` out. And reading a query, strictly.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use postrider_domain::limits::{PAGE_DEFAULT, PAGE_MAX};
use postrider_store::{Cursor, Page, PageRequest};
use serde::Serialize;
use serde::de::DeserializeOwned;
use utoipa::ToSchema;

use crate::problem::{Code, Problem};
use crate::settings::CURSOR_CHARS_MAX;

/// One page of a list.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct List<T> {
    /// The entries, newest first unless the path says otherwise.
    data: Vec<T>,
    /// Give this as `cursor` to get the next page; null on the last one.
    next_cursor: Option<String>,
}

impl<T> List<T> {
    /// A page of the store, shown.
    pub(crate) fn of<R>(page: Page<R>, show: impl FnMut(R) -> T) -> Self {
        let data = page.items.into_iter().map(show).collect();
        List { data, next_cursor: page.next.map(shown) }
    }

    /// A page of the store, shown by something that can fail.
    pub(crate) fn try_of<R>(
        page: Page<R>,
        show: impl FnMut(R) -> Result<T, Problem>,
    ) -> Result<Self, Problem> {
        let data: Result<Vec<T>, Problem> = page.items.into_iter().map(show).collect();
        Ok(List { data: data?, next_cursor: page.next.map(shown) })
    }
}

/// The parameters of a query. Each may be given once; unknown ones are refused.
#[derive(Debug)]
pub(crate) struct Query<T>(pub(crate) T);

impl<S: Sync, T: DeserializeOwned> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        parse(parts.uri.query().unwrap_or_default()).map(Query)
    }
}

/// Reads a query by way of JSON, so that a fault has its field.
fn parse<T: DeserializeOwned>(query: &str) -> Result<T, Problem> {
    let uri = format!("/?{query}").parse().map_err(|_| bad_query())?;
    let pairs = axum::extract::Query::<Vec<(String, String)>>::try_from_uri(&uri);
    let mut fields = serde_json::Map::new();
    for (name, value) in pairs.map_err(|_| bad_query())?.0 {
        if fields.insert(name.clone(), value.into()).is_some() {
            return Err(Problem::field(name, "given twice: give it once"));
        }
    }
    let text = serde_json::to_vec(&fields).map_err(|_| bad_query())?;
    crate::body::parse_fields(&text)
}

fn bad_query() -> Problem {
    Problem::new(Code::BadRequest, "the query cannot be read: percent-encode it as UTF-8")
}

/// The page that `limit` and `cursor` ask for.
pub(crate) fn page(limit: Option<&str>, cursor: Option<&str>) -> Result<PageRequest, Problem> {
    let limit = match limit {
        None => PAGE_DEFAULT,
        Some(text) => text
            .parse()
            .ok()
            .filter(|limit| (1..=PAGE_MAX).contains(limit))
            .ok_or_else(|| Problem::field("limit", format!("a number from 1 to {PAGE_MAX}")))?,
    };
    let cursor = cursor.map(|text| read_cursor(text).ok_or_else(bad_cursor)).transpose()?;
    Ok(PageRequest { limit, cursor })
}

/// A cursor in a form that needs no escaping in a URL.
fn shown(cursor: Cursor) -> String {
    URL_SAFE_NO_PAD.encode(cursor.0)
}

fn read_cursor(text: &str) -> Option<Cursor> {
    let bytes = URL_SAFE_NO_PAD.decode(text).ok().filter(|_| text.len() <= CURSOR_CHARS_MAX)?;
    String::from_utf8(bytes).ok().filter(|cursor| !cursor.is_empty()).map(Cursor)
}

/// The refusal of something that is no cursor.
pub(crate) fn bad_cursor() -> Problem {
    Problem::field("cursor", "not a cursor: give next_cursor of the page before, unchanged")
}

/// A parameter that must be of a certain kind.
pub(crate) fn parameter<T: std::str::FromStr<Err: ToString>>(
    name: &str,
    text: Option<&str>,
) -> Result<Option<T>, Problem> {
    text.map(|text| text.parse().map_err(|error: T::Err| Problem::field(name, error))).transpose()
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Default, PartialEq, Eq, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Sample {
        limit: Option<String>,
        cursor: Option<String>,
    }

    #[test]
    fn a_query_is_read_strictly() {
        assert_eq!(parse::<Sample>("").unwrap(), Sample::default());
        let full = parse::<Sample>("limit=3&cursor=a%2Bb").unwrap();
        assert_eq!(full.cursor.as_deref(), Some("a+b"));
        for (query, field) in [("surprise=1", "surprise"), ("limit=1&limit=2", "limit")] {
            let problem = serde_json::to_value(parse::<Sample>(query).unwrap_err().body()).unwrap();
            assert_eq!(problem["field"], field);
        }
    }

    #[test]
    fn pages_are_bounded() {
        let limit = |text: Option<&str>| page(text, None).map(|page| page.limit).ok();
        assert_eq!(limit(None), Some(50));
        assert_eq!(limit(Some("1")), Some(1));
        assert_eq!(limit(Some("1000")), Some(1000));
        for bad in ["0", "1001", "-1", "ten", ""] {
            assert_eq!(limit(Some(bad)), None, "{bad}");
        }
        for bad in ["", " ", "ä", "_w", &"YQ".repeat(1000)] {
            assert!(page(None, Some(bad)).is_err(), "{bad}");
        }
        let cursor = Cursor("12 sub_1".to_owned());
        assert_eq!(page(None, Some(&shown(cursor.clone()))).unwrap().cursor, Some(cursor));
    }
}
