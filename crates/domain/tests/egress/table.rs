//! Every row of the tables of hostile URLs, with every policy, and the reason of the refusal.

use postrider_domain::egress::{
    AddressRefusal, BlockReason, DestinationUrl, EgressPolicy, Host, UrlRefusal, vet_url,
};

const HOSTILE: &str = include_str!("../hostile_urls.tsv");
const MORE: &str = include_str!("../hostile_urls_more.tsv");

/// One row: a URL and its expected verdicts.
pub(crate) struct Row {
    pub(crate) url: String,
    by_default: bool,
    with_http: bool,
    with_dev: Option<bool>,
    pub(crate) why: &'static str,
}

/// The rows of both tables.
pub(crate) fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for line in HOSTILE.lines().skip(1) {
        let [url, by_default, with_http, why] = columns(line);
        let (by_default, with_http) = (accepts(by_default), accepts(with_http));
        rows.push(Row { url: unescape(url), by_default, with_http, with_dev: None, why });
    }
    for line in MORE.lines().skip(1) {
        let [url, by_default, with_http, with_dev, why] = columns(line);
        let (by_default, with_http) = (accepts(by_default), accepts(with_http));
        let with_dev = Some(accepts(with_dev));
        rows.push(Row { url: unescape(url), by_default, with_http, with_dev, why });
    }
    rows
}

fn columns<const N: usize>(line: &'static str) -> [&'static str; N] {
    let columns: Vec<&str> = line.split('\t').collect();
    columns.try_into().unwrap_or_else(|_| panic!("not {N} columns: {line}"))
}

fn accepts(verdict: &str) -> bool {
    match verdict {
        "accept" => true,
        "refuse" => false,
        _ => panic!("neither accept nor refuse: {verdict}"),
    }
}

/// `\t`, `\n`, `\r` and `\u{…}` stand for the character; any other backslash for itself.
fn unescape(text: &str) -> String {
    let mut text = text.replace("\\t", "\t").replace("\\n", "\n").replace("\\r", "\r");
    while let Some((before, rest)) = text.split_once("\\u{") {
        let (digits, after) = rest.split_once('}').expect("a closing brace");
        let code = u32::from_str_radix(digits, 16).expect("hexadecimal digits");
        text = format!("{before}{}{after}", char::from_u32(code).expect("a character"));
    }
    text
}

pub(crate) fn with_http() -> EgressPolicy {
    EgressPolicy { allow_http: true, ..EgressPolicy::default() }
}

/// Whether the outcome corresponds to the reason in the table.
fn is_reason(why: &str, outcome: &Result<DestinationUrl, UrlRefusal>) -> bool {
    let reason = match outcome {
        Ok(url) => match url.host() {
            Host::Domain(_) => "name".to_owned(),
            Host::Ipv4(_) => "public ip4".to_owned(),
            Host::Ipv6(_) => "public ip6".to_owned(),
        },
        Err(UrlRefusal::SpaceOrControl) => "control/space in url".to_owned(),
        Err(UrlRefusal::Backslash) => "backslash".to_owned(),
        Err(UrlRefusal::Slashes) => "malformed authority".to_owned(),
        Err(UrlRefusal::Malformed(_)) => "parse".to_owned(),
        Err(UrlRefusal::Scheme) => "scheme".to_owned(),
        Err(UrlRefusal::Userinfo) => "userinfo".to_owned(),
        Err(UrlRefusal::Fragment) => "fragment".to_owned(),
        Err(UrlRefusal::Port(port)) => format!("port {port}"),
        Err(UrlRefusal::BadLabel) => "bad label".to_owned(),
        Err(UrlRefusal::SingleLabel) => "single label".to_owned(),
        Err(UrlRefusal::SpecialUseName(_)) => "special-use name".to_owned(),
        Err(UrlRefusal::Address(AddressRefusal::Blocked { reason, .. })) => match reason {
            BlockReason::Network(network) => match network.to_string().as_str() {
                "2002::/16" => "ip6 6to4".to_owned(),
                "2001::/23" => "ip6 2001::/23 (Teredo/ORCHID/benchmark)".to_owned(),
                text if text.contains(':') => format!("ip6 {text}"),
                text => format!("ip4 {text}"),
            },
            BlockReason::NotGlobalUnicast | BlockReason::Ipv4Mapped => {
                "ip6 outside 2000::/3".to_owned()
            }
            BlockReason::Own | BlockReason::Nat64(_) | BlockReason::Nat64Malformed => {
                panic!("no table has {reason}")
            }
        },
        Err(
            UrlRefusal::TooLong
            | UrlRefusal::HttpNotAllowed
            | UrlRefusal::NameTooLong
            | UrlRefusal::Address(AddressRefusal::NoAddress),
        ) => panic!("no table has {outcome:?}"),
    };
    why == reason
}

#[test]
fn every_hostile_url_has_the_verdict_of_its_table() {
    let (strict, http) = (EgressPolicy::default(), with_http());
    let dev = EgressPolicy { dev: true, ..EgressPolicy::default() };
    let rows = rows();
    for row in &rows {
        let url = &row.url;
        assert_eq!(vet_url(url, &strict).is_ok(), row.by_default, "{url:?} by default");
        assert_eq!(vet_url(url, &http).is_ok(), row.with_http, "{url:?} with http");
        if let Some(with_dev) = row.with_dev {
            assert_eq!(vet_url(url, &dev).is_ok(), with_dev, "{url:?} with dev");
        }
    }
    let ours = HOSTILE.lines().count() - 1;
    assert_eq!(ours, 123);
    println!("hostile urls: {ours} and {} more, every verdict as listed", rows.len() - ours);
}

#[test]
fn every_hostile_url_is_refused_for_the_reason_that_its_table_gives() {
    let http = with_http();
    for row in rows() {
        let outcome = vet_url(&row.url, &http);
        assert!(is_reason(row.why, &outcome), "{:?}: {}, not {outcome:?}", row.url, row.why);
    }
}

#[test]
fn https_makes_no_hostile_url_harmless() {
    // By default every http row is refused for being http; as https the row's own reason must
    // apply.
    let strict = EgressPolicy::default();
    let mut changed = 0;
    for row in rows() {
        let Some(rest) = row.url.strip_prefix("http:") else { continue };
        let url = format!("https:{rest}");
        let outcome = vet_url(&url, &strict);
        assert_eq!(outcome.is_ok(), row.with_http, "{url:?}");
        assert!(is_reason(row.why, &outcome), "{url:?}: {}, not {outcome:?}", row.why);
        changed += 1;
    }
    assert!(changed > 80, "{changed}");
}
