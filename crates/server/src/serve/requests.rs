//! Requests to the API as metrics and, where that is set, as lines of the access log.
//!
//! **No query is logged and no header**: tokens stand there. Labels are the route as it is documented,
//! never the path that a client sent, so their number is bounded.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::Router;
use axum::extract::{MatchedPath, Request, State};
use axum::http::Method;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use postrider_api::ClientAddress;
use postrider_api::problem::Code;
use tokio::time::Instant;

use super::metrics::{Histogram, Metrics, Page};

/// The target of access log lines.
const ACCESS: &str = "postrider::access";
/// The label of a path that is no route.
const NO_ROUTE: &str = "none";

/// Requests so far.
#[derive(Default)]
pub(super) struct Requests {
    /// By method, route and status.
    answered: BTreeMap<(&'static str, String, u16), u64>,
    /// By route.
    seconds: BTreeMap<String, Histogram>,
    /// By the code of the problem that was the answer.
    problems: BTreeMap<&'static str, u64>,
}

impl Requests {
    pub(super) fn add(
        &mut self,
        (method, route): (&Method, &str),
        status: u16,
        problem: Option<&'static str>,
        took: Duration,
    ) {
        let key = (name(method), route.to_owned(), status);
        *self.answered.entry(key).or_default() += 1;
        match self.seconds.get_mut(route) {
            Some(histogram) => histogram.observe(took),
            None => self.seconds.entry(route.to_owned()).or_default().observe(took),
        }
        if let Some(problem) = problem {
            *self.problems.entry(problem).or_default() += 1;
        }
    }

    pub(super) fn render(&self, page: &mut Page) {
        let help = "Requests to the API, by method, route and status.";
        page.head("postrider_http_requests_total", "counter", help);
        for ((method, route, status), count) in &self.answered {
            let labels = format!("method=\"{method}\",route=\"{route}\",status=\"{status}\"");
            page.line(&format!("postrider_http_requests_total{{{labels}}}"), count);
        }
        let help = "From the head of a request to the head of its answer, by route.";
        page.head("postrider_http_request_seconds", "histogram", help);
        for (route, histogram) in &self.seconds {
            let label = format!("route=\"{route}\"");
            histogram.lines(page, "postrider_http_request_seconds", Some(&label));
        }
        let help = "Requests that were answered with a problem, by its code: refusals, rate limits, errors.";
        page.head("postrider_problems_total", "counter", help);
        for (code, count) in &self.problems {
            page.line(&format!("postrider_problems_total{{code=\"{code}\"}}"), count);
        }
    }
}

/// The name of a method; others than these are refused anyway.
fn name(method: &Method) -> &'static str {
    let known = ["GET", "POST", "PATCH", "DELETE", "HEAD", "OPTIONS", "PUT"];
    known.into_iter().find(|name| *name == method.as_str()).unwrap_or("other")
}

#[derive(Clone)]
struct Observer {
    metrics: Metrics,
    is_logged: bool,
}

/// The router with its requests counted and, if wanted, logged.
pub(super) fn with_metrics(router: Router, metrics: Metrics, is_logged: bool) -> Router {
    router.layer(from_fn_with_state(Observer { metrics, is_logged }, observe))
}

#[expect(clippy::disallowed_methods, reason = "measures how long something took, nothing else")]
async fn observe(State(observer): State<Observer>, request: Request, next: Next) -> Response {
    let began = Instant::now();
    let route = request.extensions().get::<MatchedPath>().cloned();
    let method = request.method().clone();
    let logged = observer.is_logged.then(|| {
        let address = request.extensions().get::<ClientAddress>().map(|client| client.0);
        (request.uri().path().to_owned(), address)
    });
    let response = next.run(request).await;
    let took = began.elapsed();
    let route = route.as_ref().map_or(NO_ROUTE, MatchedPath::as_str);
    let status = response.status().as_u16();
    let problem = response.extensions().get::<Code>().map(|code| code.as_str());
    observer.metrics.request((&method, route), status, problem, took);
    if let Some((path, address)) = logged {
        tracing::info!(
            target: ACCESS,
            method = name(&method),
            path,
            status,
            code = problem,
            ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
            address = address.map(|address| address.to_string()),
            "request"
        );
    }
    response
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::routing::get;
    use tower::ServiceExt as _;

    use super::*;

    #[tokio::test]
    async fn request_is_counted_by_its_route_and_not_by_its_path() {
        let router = Router::new().route("/things/{id}", get(|| async { "here" }));
        let metrics = Metrics::default();
        let router = with_metrics(router, metrics.clone(), false);
        for (path, status) in [("/things/1?token=x", 200), ("/things/2", 200), ("/other", 404)] {
            let request = Request::get(path).body(Body::empty()).unwrap();
            let answer = router.clone().oneshot(request).await.unwrap();
            assert_eq!(answer.status().as_u16(), status, "{path}");
        }
        let page = metrics.render();
        for line in [
            "postrider_http_requests_total{method=\"GET\",route=\"/things/{id}\",status=\"200\"} 2",
            "postrider_http_requests_total{method=\"GET\",route=\"none\",status=\"404\"} 1",
            "postrider_http_request_seconds_count{route=\"/things/{id}\"} 2",
        ] {
            assert!(page.lines().any(|found| found == line), "{line} is not in\n{page}");
        }
        assert!(!page.contains("token") && !page.contains("/things/1"), "{page}");
    }
}
