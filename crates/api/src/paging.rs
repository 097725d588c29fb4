//! Pages of lists: `limit` and `cursor` in, `data` and `next_cursor` out; and strict parsing of
//! queries.
//!
//! A cursor contains a digest of its list and filters. **A cursor of another list, tenant or filter
//! is refused**: it would point to a wrong entry there.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use postrider_domain::ids::TenantId;
use postrider_domain::limits::{PAGE_DEFAULT, PAGE_MAX};
use postrider_store::{Cursor, Page, PageRequest};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest as _, Sha256};
use utoipa::ToSchema;

use crate::problem::{Code, Problem};
use crate::settings::CURSOR_CHARS_MAX;

/// One page of a list.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct List<T> {
    /// The entries, newest first unless the path says otherwise. A page may have fewer than `limit`
    /// and yet a `next_cursor`: it ends early if its entries are together large (4 MiB).
    data: Vec<T>,
    /// Give this as `cursor` to get the next page; null on the last one.
    next_cursor: Option<String>,
}

impl<T> List<T> {
    /// The entries of the page.
    pub(crate) fn entries(&self) -> &[T] {
        &self.data
    }

    /// The cursor of the next page.
    pub(crate) fn next_cursor(&self) -> Option<&str> {
        self.next_cursor.as_deref()
    }

    /// Makes a page from one of the store.
    pub(crate) fn of<R>(asked: &ListRequest, page: Page<R>, show: impl FnMut(R) -> T) -> Self {
        let data = page.items.into_iter().map(show).collect();
        List { data, next_cursor: page.next.map(|next| asked.shown(&next)) }
    }

    /// The same page with this entry before the others.
    pub(crate) fn beginning_with(mut self, first: Option<T>) -> Self {
        self.data.splice(0..0, first);
        self
    }

    /// Makes a page from one of the store, with a conversion that can fail.
    pub(crate) fn try_of<R>(
        asked: &ListRequest,
        page: Page<R>,
        show: impl FnMut(R) -> Result<T, Problem>,
    ) -> Result<Self, Problem> {
        let data: Result<Vec<T>, Problem> = page.items.into_iter().map(show).collect();
        Ok(List { data: data?, next_cursor: page.next.map(|next| asked.shown(&next)) })
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

/// Parses a query by way of JSON, so that an error names its field.
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

/// The length of the digest.
const MARK_BYTES: usize = 8;

/// The list, its tenant and its filters, for which a cursor is valid.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ListOf<'a> {
    /// The list's name, the same for every call.
    pub(crate) name: &'static str,
    /// The tenant of the list; `None` if it has none.
    pub(crate) tenant: Option<&'a TenantId>,
    /// Every filter of the list as it was given, always in the same order.
    pub(crate) filters: &'a [Option<&'a str>],
}

impl ListOf<'_> {
    /// A digest that is the same in every version and after every restart.
    fn mark(&self) -> [u8; MARK_BYTES] {
        let mut digest = Sha256::new();
        let mut add = |part: Option<&str>| match part {
            None => digest.update([0]),
            Some(text) => {
                digest.update([1]);
                digest.update(u64::try_from(text.len()).unwrap_or(u64::MAX).to_le_bytes());
                digest.update(text);
            }
        };
        add(Some(self.name));
        add(self.tenant.map(TenantId::as_str));
        self.filters.iter().for_each(|filter| add(*filter));
        let digest: [u8; 32] = digest.finalize().into();
        digest.first_chunk().copied().unwrap_or_default()
    }
}

/// The page that a request asks for.
#[derive(Debug)]
pub(crate) struct ListRequest {
    mark: [u8; MARK_BYTES],
    /// The request for the store.
    pub(crate) request: PageRequest,
}

impl ListRequest {
    /// A cursor in a form that needs no escaping in a URL.
    pub(crate) fn shown(&self, cursor: &Cursor) -> String {
        URL_SAFE_NO_PAD.encode([self.mark.as_slice(), cursor.0.as_bytes()].concat())
    }
}

/// The page of a list that `limit` and `cursor` ask for.
pub(crate) fn page(
    list: ListOf<'_>,
    limit: Option<&str>,
    cursor: Option<&str>,
) -> Result<ListRequest, Problem> {
    let limit = match limit {
        None => PAGE_DEFAULT,
        Some(text) => text
            .parse()
            .ok()
            .filter(|limit| (1..=PAGE_MAX).contains(limit))
            .ok_or_else(|| Problem::field("limit", format!("a number from 1 to {PAGE_MAX}")))?,
    };
    let mark = list.mark();
    let cursor = cursor.map(|text| read_cursor(text, mark)).transpose()?;
    Ok(ListRequest { mark, request: PageRequest { limit, cursor } })
}

fn read_cursor(text: &str, mark: [u8; MARK_BYTES]) -> Result<Cursor, Problem> {
    let bytes = URL_SAFE_NO_PAD.decode(text).ok().filter(|_| text.len() <= CURSOR_CHARS_MAX);
    let bytes = bytes.ok_or_else(bad_cursor)?;
    let (found, place) = bytes.split_first_chunk().ok_or_else(bad_cursor)?;
    if *found != mark {
        let detail = "a cursor of another list, or of other filters: repeat the filters of the \
                      page before, or begin again without a cursor";
        return Err(Problem::field("cursor", detail));
    }
    let place = std::str::from_utf8(place).ok().filter(|place| !place.is_empty());
    place.map(|place| Cursor(place.to_owned())).ok_or_else(bad_cursor)
}

/// The problem of a malformed cursor.
pub(crate) fn bad_cursor() -> Problem {
    Problem::field("cursor", "not a cursor: give next_cursor of the page before, unchanged")
}

/// Parses a parameter.
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

    const LIST: ListOf<'_> = ListOf { name: "events", tenant: None, filters: &[] };

    #[test]
    fn pages_are_bounded() {
        let limit =
            |text: Option<&str>| page(LIST, text, None).map(|asked| asked.request.limit).ok();
        assert_eq!(limit(None), Some(50));
        assert_eq!(limit(Some("1")), Some(1));
        assert_eq!(limit(Some("1000")), Some(1000));
        for bad in ["0", "1001", "-1", "ten", ""] {
            assert_eq!(limit(Some(bad)), None, "{bad}");
        }
        for bad in ["", " ", "ä", "_w", &"YQ".repeat(1000)] {
            assert!(page(LIST, None, Some(bad)).is_err(), "{bad}");
        }
    }

    #[test]
    fn cursor_is_good_for_its_own_list_and_filters_only() {
        let (acme, umbrella) = ("acme".parse().unwrap(), "umbrella".parse().unwrap());
        let list = |name, tenant, filters| ListOf { name, tenant: Some(tenant), filters };
        let dead = [Some("dead"), None];
        let cursor = Cursor("12 sub_1".to_owned());
        let shown = page(list("deliveries", &acme, &dead), None, None).unwrap().shown(&cursor);
        let again = page(list("deliveries", &acme, &dead), None, Some(&shown)).unwrap();
        assert_eq!(again.request.cursor, Some(cursor));
        for other in [
            list("events", &acme, &dead),
            list("deliveries", &umbrella, &dead),
            list("deliveries", &acme, &[None, Some("dead")]),
            list("deliveries", &acme, &[Some("waiting"), None]),
            list("deliveries", &acme, &[]),
            ListOf { name: "deliveries", tenant: None, filters: &dead },
        ] {
            let problem = page(other, None, Some(&shown)).unwrap_err();
            let body = serde_json::to_value(problem.body()).unwrap();
            assert_eq!((&body["status"], &body["field"]), (&422.into(), &"cursor".into()));
            assert!(body["detail"].as_str().unwrap().contains("another list"), "{body}");
        }
    }

    #[test]
    fn mark_of_a_list_never_changes() {
        let acme = "acme".parse().unwrap();
        let list = ListOf { name: "events", tenant: Some(&acme), filters: &[Some("a.b"), None] };
        assert_eq!(URL_SAFE_NO_PAD.encode(list.mark()), "u0whv7vcASc");
    }
}
