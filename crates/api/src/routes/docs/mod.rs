//! The OpenAPI document as a page, rendered on the server. The only script hides what a search does not find.

mod guide;

use std::fmt::Write as _;
use std::sync::OnceLock;

use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use serde_json::{Map, Value};

use crate::problem::Code;

/// Allows one style sheet and one script of our own, and nothing else.
const CSP: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; style-src 'self'; script-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
);
const METHODS: [&str; 4] = ["get", "post", "patch", "delete"];

/// The reference
///
/// This document, readable.
#[utoipa::path(
    get, path = "/docs", tag = "server", security(()),
    responses((status = 200, content_type = "text/html", body = String, description = "A page"))
)]
pub(crate) async fn page() -> Response {
    static PAGE: OnceLock<Bytes> = OnceLock::new();
    let page = PAGE.get_or_init(|| render(&crate::openapi()).into());
    let headers: [(HeaderName, HeaderValue); 2] = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8")),
        (header::CONTENT_SECURITY_POLICY, CSP),
    ];
    (headers, page.clone()).into_response()
}

/// The style sheet of the reference, which is no call of the API.
pub(crate) async fn style() -> Response {
    let headers = [
        (header::CONTENT_TYPE, "text/css; charset=utf-8"),
        (header::CACHE_CONTROL, "public, max-age=3600"),
    ];
    (headers, include_str!("docs.css")).into_response()
}

/// The script of the search, which is no call of the API.
pub(crate) async fn script() -> Response {
    let headers = [
        (header::CONTENT_TYPE, "text/javascript; charset=utf-8"),
        (header::CACHE_CONTROL, "public, max-age=3600"),
    ];
    (headers, include_str!("search.js")).into_response()
}

/// The whole page.
fn render(document: &Value) -> String {
    let mut page = String::with_capacity(512 * 1024);
    let info = &document["info"];
    let title = escaped(text(&info["title"]));
    let _infallible = write!(
        page,
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width, initial-scale=1\"><title>{title} API</title><link \
         rel=\"stylesheet\" href=\"/docs/style.css\"><script src=\"/docs/search.js\" defer></script></head><body>\
         <input type=\"checkbox\" id=\"open\"><label class=\"burger\" for=\"open\">☰ {title} API</label>",
    );
    contents(&mut page, document);
    let _infallible = write!(
        page,
        "<main><h1>{title} API</h1><p>{}</p><p>Version {}, OpenAPI {}: <a href=\"/openapi.json\">openapi.json</a></p>",
        prose(text(&info["description"])),
        escaped(text(&info["version"])),
        escaped(text(&document["openapi"])),
    );
    guide::sections(&mut page);
    for tag in array(&document["tags"]) {
        section(&mut page, document, tag);
    }
    schemas(&mut page, document);
    problems(&mut page);
    page.push_str("</main></body></html>");
    page
}

/// The operations of one tag: path, method and description.
fn operations<'a>(
    document: &'a Value,
    tag: &'a str,
) -> impl Iterator<Item = (&'a str, &'static str, &'a Value)> {
    object(&document["paths"]).into_iter().flat_map(move |(path, item)| {
        METHODS.into_iter().filter_map(move |method| {
            let operation = item.get(method)?;
            let is_tagged = array(&operation["tags"]).iter().any(|t| t == tag);
            is_tagged.then_some((path.as_str(), method, operation))
        })
    })
}

/// The sidebar: search, the sections, and every call.
fn contents(page: &mut String, document: &Value) {
    page.push_str(
        "<nav class=\"menu\" aria-label=\"Contents\"><form><input type=\"search\" id=\"search\" \
         placeholder=\"Search calls  ( / )\" aria-label=\"Search\" autocomplete=\"off\"></form>\
         <p class=\"skip\" id=\"none\" hidden>Nothing matches.</p><h2>Guide</h2><ul>",
    );
    for (anchor, title) in guide::TITLES {
        let words = title.to_lowercase();
        let _infallible = write!(
            page,
            "<li data-words=\"{}\"><a href=\"#{anchor}\">{}</a></li>",
            escaped(&words),
            escaped(title)
        );
    }
    page.push_str("</ul>");
    for tag in array(&document["tags"]) {
        let name = text(&tag["name"]);
        let _infallible = write!(page, "<div data-group><h2>{}</h2><ul>", escaped(name));
        for (path, method, operation) in operations(document, name) {
            let summary = text(&operation["summary"]);
            let words = format!("{method} {path} {summary} {name}").to_lowercase();
            let _infallible = write!(
                page,
                "<li data-words=\"{}\"><a href=\"#{}\" title=\"{}\"><span class=\"method {method}\">{}</span> \
                 <span>{}</span></a></li>",
                escaped(&words),
                anchor(method, path),
                escaped(path),
                method.to_uppercase(),
                escaped(summary),
            );
        }
        page.push_str("</ul></div>");
    }
    page.push_str(
        "<h2>Tables</h2><ul><li><a href=\"#schemas\">Schemas</a></li><li><a href=\"#problems\">Problems</a></li>\
         </ul></nav>",
    );
}

fn section(page: &mut String, document: &Value, tag: &Value) {
    let name = text(&tag["name"]);
    let _infallible = write!(
        page,
        "<section><h2 id=\"{0}\">{0}</h2><p>{1}</p>",
        escaped(name),
        prose(text(&tag["description"])),
    );
    for (path, method, operation) in operations(document, name) {
        let _infallible = write!(
            page,
            "<article id=\"{}\"><h3><span class=\"method {method}\">{}</span> <code>{}</code></h3>\
             <p class=\"summary\">{}</p><p>{}</p><p class=\"scope\">{}</p>",
            anchor(method, path),
            method.to_uppercase(),
            escaped(path),
            escaped(text(&operation["summary"])),
            prose(text(&operation["description"])),
            prose(&needed(method, path)),
        );
        let _infallible =
            write!(page, "<pre><code>{}</code></pre>", escaped(&curl(method, path, operation)));
        parameters(page, operation);
        if let Some(body) = operation.get("requestBody") {
            page.push_str("<h4>Body</h4><ul>");
            contents_of(page, &body["content"]);
            page.push_str("</ul>");
        }
        responses(page, operation);
        page.push_str("</article>");
    }
    page.push_str("</section>");
}

fn parameters(page: &mut String, operation: &Value) {
    let parameters = array(&operation["parameters"]);
    if parameters.is_empty() {
        return;
    }
    page.push_str("<h4>Parameters</h4><div class=\"wide\"><table><tr><th>name</th><th>in</th><th>type</th><th></th></tr>");
    for parameter in parameters {
        let _infallible = write!(
            page,
            "<tr><td><code>{}</code></td><td>{}</td><td>{}</td><td>{}</td></tr>",
            escaped(text(&parameter["name"])),
            escaped(text(&parameter["in"])),
            kind(&parameter["schema"]),
            prose(text(&parameter["description"])),
        );
    }
    page.push_str("</table></div>");
}

/// The scopes that a key needs for a call, in a sentence.
fn needed(method: &str, path: &str) -> String {
    match crate::scopes_of(method, path) {
        None => "Needs no key.".to_owned(),
        Some([]) => "Needs a key with any scope.".to_owned(),
        Some(scopes) => {
            let scopes: Vec<String> =
                scopes.iter().map(|scope| format!("`{}`", scope.as_str())).collect();
            format!("Needs a key with the scope {}.", scopes.join(" and "))
        }
    }
}

/// A call by curl, with the example of its body.
fn curl(method: &str, path: &str, operation: &Value) -> String {
    let mut words = vec!["curl".to_owned()];
    if method != "get" {
        words.push(format!("-X {}", method.to_uppercase()));
    }
    words.push(format!("\"$POSTRIDER{}\"", path.replace('{', "$").replace('}', "")));
    let mut lines = vec![words.join(" ")];
    if crate::scopes_of(method, path).is_some() {
        lines.push("-H \"Authorization: Bearer $KEY\"".to_owned());
    }
    let body = &operation["requestBody"]["content"]["application/json"];
    if !body.is_null() {
        let example = body.get("example").map_or_else(|| "{}".to_owned(), Value::to_string);
        lines.push("-H 'Content-Type: application/json'".to_owned());
        lines.push(format!("-d '{example}'"));
    }
    lines.join(" \\\n  ")
}

fn responses(page: &mut String, operation: &Value) {
    page.push_str("<h4>Answers</h4><table><tr><th>status</th><th></th><th>body</th></tr>");
    for (status, response) in object(&operation["responses"]) {
        let _infallible = write!(
            page,
            "<tr><td>{}</td><td>{}</td><td><ul>",
            escaped(status),
            prose(text(&response["description"])),
        );
        contents_of(page, &response["content"]);
        page.push_str("</ul></td></tr>");
    }
    page.push_str("</table>");
    for (status, response) in object(&operation["responses"]) {
        for (media_type, body) in object(&response["content"]) {
            answer_example(page, status, media_type, &body["example"]);
        }
    }
}

/// An answer as a client gets it, folded.
fn answer_example(page: &mut String, status: &str, media_type: &str, example: &Value) {
    let shown = match example {
        Value::Null => return,
        Value::String(text) => text.clone(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            // A value can always be written.
            serde_json::to_string_pretty(example).unwrap_or_default()
        }
    };
    let _infallible = write!(
        page,
        "<details><summary>Example of {} <code>{}</code></summary><pre><code>{}</code></pre></details>",
        escaped(status),
        escaped(media_type),
        escaped(&shown),
    );
}

fn contents_of(page: &mut String, content: &Value) {
    for (media_type, body) in object(content) {
        let kind = kind(&body["schema"]);
        let _infallible = write!(page, "<li><code>{}</code>: {kind}</li>", escaped(media_type));
    }
}

fn schemas(page: &mut String, document: &Value) {
    page.push_str("<section><h2 id=\"schemas\">Schemas</h2>");
    for (name, schema) in object(&document["components"]["schemas"]) {
        let _infallible = write!(
            page,
            "<article id=\"schema-{0}\"><h3>{0}</h3><p>{1}</p>",
            escaped(name),
            prose(text(&schema["description"])),
        );
        fields(page, schema);
        for part in array(&schema["allOf"]) {
            let _infallible = write!(page, "<p>{}</p>", kind(part));
            fields(page, part);
        }
        page.push_str("</article>");
    }
    page.push_str("</section>");
}

fn fields(page: &mut String, schema: &Value) {
    let properties = object(&schema["properties"]);
    if properties.is_empty() {
        return;
    }
    page.push_str("<table><tr><th>field</th><th>kind</th><th></th></tr>");
    for (name, property) in properties {
        let is_required = array(&schema["required"]).iter().any(|required| required == name);
        let _infallible = write!(
            page,
            "<tr><td><code>{}</code>{}</td><td>{}</td><td>{}</td></tr>",
            escaped(name),
            if is_required { "" } else { "?" },
            kind(property),
            prose(text(&property["description"])),
        );
    }
    page.push_str("</table>");
}

fn problems(page: &mut String) {
    page.push_str(
        "<section><h2 id=\"problems\">Problems</h2><table><tr><th>code</th><th>status</th><th></th>\
         <th>what to do</th></tr>",
    );
    for code in Code::ALL {
        let _infallible = write!(
            page,
            "<tr id=\"problem-{0}\"><td><code>{0}</code></td><td>{1}</td><td>{2}</td><td>{3}</td></tr>",
            code.as_str(),
            code.status().as_u16(),
            escaped(code.title()),
            prose(code.remedy()),
        );
    }
    page.push_str("</table></section>");
}

/// The type that a schema describes, with a link if it has a name.
fn kind(schema: &Value) -> String {
    if let Some(reference) = schema["$ref"].as_str() {
        let name = escaped(reference.rsplit('/').next().unwrap_or_default());
        return format!("<a href=\"#schema-{name}\">{name}</a>");
    }
    let one_of: Vec<String> = array(&schema["oneOf"]).iter().map(kind).collect();
    if !one_of.is_empty() {
        return one_of.join(" or ");
    }
    let kinds: Vec<String> = match schema["type"].as_array() {
        Some(kinds) => kinds.iter().map(|kind| escaped(text(kind))).collect(),
        None => vec![escaped(text(&schema["type"]))],
    };
    match schema.get("items") {
        Some(items) => format!("list of {}", kind(items)),
        None => kinds.join(" or "),
    }
}

fn anchor(method: &str, path: &str) -> String {
    let path: String = path.chars().map(|c| if c.is_alphanumeric() { c } else { '-' }).collect();
    format!("{method}{path}")
}

/// Renders text with `code` in it, and blank lines between paragraphs.
fn prose(markdown: &str) -> String {
    let mut html = String::with_capacity(markdown.len() + 16);
    for (n, part) in escaped(markdown).split('`').enumerate() {
        match (n, n % 2) {
            (0, _) => {}
            (_, 1) => html.push_str("<code>"),
            (_, _) => html.push_str("</code>"),
        }
        html.push_str(part);
    }
    html.replace("\n\n", "</p><p>")
}

fn escaped(text: &str) -> String {
    let mut html = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&quot;"),
            '\'' => html.push_str("&#39;"),
            c => html.push(c),
        }
    }
    html
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn object(value: &Value) -> Vec<(&String, &Value)> {
    value.as_object().map(Map::iter).into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_the_document_is_escaped() {
        assert_eq!(escaped("<a href=\"x\">&'"), "&lt;a href=&quot;x&quot;&gt;&amp;&#39;");
        assert_eq!(prose("use `a<b` now"), "use <code>a&lt;b</code> now");
        assert_eq!(prose("one\n\ntwo"), "one</p><p>two");
    }

    #[test]
    fn every_operation_schema_and_problem_is_on_the_page() {
        let document = crate::openapi();
        let page = render(&document);
        for (path, item) in object(&document["paths"]) {
            for method in METHODS.into_iter().filter(|method| item.get(method).is_some()) {
                let id = format!("<article id=\"{}\"", anchor(method, path));
                assert!(page.contains(&id), "{method} {path}");
            }
        }
        for (name, _) in object(&document["components"]["schemas"]) {
            assert!(page.contains(&format!("id=\"schema-{name}\"")), "{name}");
        }
        for code in Code::ALL {
            assert!(page.contains(&format!("id=\"problem-{}\"", code.as_str())));
        }
        assert_eq!(page.matches("<script").count(), 1, "the search");
        assert!(!page.contains("style=") && !page.contains("http:"));
        for (anchor, _) in guide::TITLES {
            assert!(page.contains(&format!("id=\"{anchor}\"")), "{anchor}");
        }
        assert!(page.contains("curl -X POST &quot;$POSTRIDER/v1/events&quot;"));
    }
}
