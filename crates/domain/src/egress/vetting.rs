//! Decides whether a URL can be a destination.
//!
//! The text is parsed once, and every decision is made on the parsed URL. Before that, only texts
//! are refused that the parser would silently repair, because two parsers could read them
//! differently.

use url::{Host, ParseError, Url};

use super::name::{is_localhost, vet_name};
use super::{AddressRefusal, DestinationUrl, EgressPolicy, vet_address};
use crate::limits::URL_BYTES_MAX;

/// Ports from 1024 on at which internal services listen.
const PORTS_REFUSED: [u16; 15] =
    [2375, 2376, 2379, 2380, 3306, 5432, 5984, 6379, 6443, 8500, 9200, 9300, 10250, 11211, 27017];

/// Why a URL cannot be a destination. No message repeats the URL, which may contain a password.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UrlRefusal {
    /// Longer than [`URL_BYTES_MAX`], as given or as the parser writes it.
    #[error("the url has more than {URL_BYTES_MAX} bytes, once encoded; give a shorter one")]
    TooLong,
    /// A character that some parsers drop and others encode.
    #[error("the url contains a space or a control character; remove it, or percent-encode it")]
    SpaceOrControl,
    /// A backslash, which some parsers read as a slash.
    #[error("the url contains a backslash; write `/`, or `%5C` where a backslash is meant")]
    Backslash,
    /// Not exactly two slashes between scheme and host.
    #[error("the url needs exactly two slashes after its scheme, as in https://host/path")]
    Slashes,
    /// The parser rejects it.
    #[error("the url cannot be read ({0}); it should look like https://host/path")]
    Malformed(ParseError),
    /// Neither https nor http.
    #[error("the url's scheme is not supported; use https")]
    Scheme,
    /// http, which the policy does not permit.
    #[error("plain http is not allowed; use https, or have the operator set egress.allow_http")]
    HttpNotAllowed,
    /// A user name or password, even an empty one.
    #[error("the url contains a user name or password; remove it and set `auth_token` instead")]
    Userinfo,
    /// A fragment, even an empty one.
    #[error("the url contains a fragment, which is never sent; remove the `#` and what follows")]
    Fragment,
    /// A port that receivers do not use, but internal services do.
    #[error("port {0} is not allowed; use 443, 80, or one from 1024 that no internal service has")]
    Port(u16),
    /// Longer than DNS permits.
    #[error("the host name has more than 253 characters; give a shorter one")]
    NameTooLong,
    /// An empty, over-long or unusual label.
    #[error(
        "the host name is malformed; it consists of 1 to 63 letters, digits, `-` or `_` between \
         single dots"
    )]
    BadLabel,
    /// A name with a single label.
    #[error("the host name has no domain; give a full name such as hooks.example.com")]
    SingleLabel,
    /// A top-level name that public DNS does not have.
    #[error("names under .{0} are not public; give a name that public DNS resolves")]
    SpecialUseName(&'static str),
    /// An address that may not be contacted.
    #[error(
        "the address in the url may not be contacted; use a public one, or have the operator add \
         its network to egress.allow"
    )]
    Address(AddressRefusal),
}

impl UrlRefusal {
    /// The stable code of the refusal.
    pub const fn code(&self) -> &'static str {
        match self {
            UrlRefusal::TooLong => "url_too_long",
            UrlRefusal::SpaceOrControl => "url_space_or_control",
            UrlRefusal::Backslash => "url_backslash",
            UrlRefusal::Slashes => "url_slashes",
            UrlRefusal::Malformed(_) => "url_malformed",
            UrlRefusal::Scheme => "url_scheme",
            UrlRefusal::HttpNotAllowed => "url_http_not_allowed",
            UrlRefusal::Userinfo => "url_userinfo",
            UrlRefusal::Fragment => "url_fragment",
            UrlRefusal::Port(_) => "url_port",
            UrlRefusal::NameTooLong => "url_host_too_long",
            UrlRefusal::BadLabel => "url_host_malformed",
            UrlRefusal::SingleLabel => "url_host_single_label",
            UrlRefusal::SpecialUseName(_) => "url_host_special_use",
            UrlRefusal::Address(_) => "url_address",
        }
    }
}

/// Checks whether this URL may be a destination, and returns its normal form. Needs no DNS: the
/// resolved addresses are checked by [`super::vet_answers`].
///
/// # Errors
///
/// The first [`UrlRefusal`] that applies.
pub fn vet_url(text: &str, policy: &EgressPolicy) -> Result<DestinationUrl, UrlRefusal> {
    vet_text(text)?;
    let url = Url::parse(text).map_err(UrlRefusal::Malformed)?;
    if url.as_str().len() > URL_BYTES_MAX {
        return Err(UrlRefusal::TooLong);
    }
    match url.scheme() {
        "https" => {}
        "http" if policy.permits_http() => {}
        "http" => return Err(UrlRefusal::HttpNotAllowed),
        _ => return Err(UrlRefusal::Scheme),
    }
    // The parser drops an empty user name, so look at the text.
    if authority(text).is_some_and(|authority| authority.contains('@')) {
        return Err(UrlRefusal::Userinfo);
    }
    if url.fragment().is_some() {
        return Err(UrlRefusal::Fragment);
    }
    let url = DestinationUrl::from_vetted(url);
    vet_again(&url, policy)?;
    vet_host(&url.host(), policy)?;
    Ok(url)
}

/// Checks scheme and port of a URL again, because it may have been accepted under another policy.
/// The address of its host is checked by [`super::vet_address`].
///
/// # Errors
///
/// [`UrlRefusal::HttpNotAllowed`] or [`UrlRefusal::Port`].
pub fn vet_again(url: &DestinationUrl, policy: &EgressPolicy) -> Result<(), UrlRefusal> {
    if !url.is_https() && !policy.permits_http() {
        return Err(UrlRefusal::HttpNotAllowed);
    }
    vet_port(url.port_or_default(), policy.dev && is_loopback(&url.host()))
}

/// Refuses texts that the parser would silently repair.
fn vet_text(text: &str) -> Result<(), UrlRefusal> {
    if text.len() > URL_BYTES_MAX {
        return Err(UrlRefusal::TooLong);
    }
    if text.contains(|c: char| c.is_control() || c.is_whitespace()) {
        return Err(UrlRefusal::SpaceOrControl);
    }
    if text.contains('\\') {
        return Err(UrlRefusal::Backslash);
    }
    let is_http = text.split_once(':').is_some_and(|(scheme, _)| {
        scheme.eq_ignore_ascii_case("https") || scheme.eq_ignore_ascii_case("http")
    });
    if is_http && authority(text).is_none() {
        return Err(UrlRefusal::Slashes);
    }
    Ok(())
}

/// The part between exactly two slashes after the scheme and the next `/`, `?` or `#`.
fn authority(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once(':')?;
    let rest = rest.strip_prefix("//").filter(|rest| !rest.starts_with('/'))?;
    rest.split(['/', '?', '#']).next()
}

fn vet_port(port: u16, any_allowed: bool) -> Result<(), UrlRefusal> {
    let is_allowed = match port {
        0 => false,
        443 | 80 => true,
        1..1024 => any_allowed,
        1024.. => any_allowed || !PORTS_REFUSED.contains(&port),
    };
    if is_allowed { Ok(()) } else { Err(UrlRefusal::Port(port)) }
}

fn vet_host(host: &Host<&str>, policy: &EgressPolicy) -> Result<(), UrlRefusal> {
    match *host {
        Host::Domain(name) => vet_name(name, policy.dev),
        Host::Ipv4(address) => vet_address(address.into(), policy).map_err(UrlRefusal::Address),
        Host::Ipv6(address) => vet_address(address.into(), policy).map_err(UrlRefusal::Address),
    }
}

fn is_loopback(host: &Host<&str>) -> bool {
    match host {
        Host::Domain(name) => is_localhost(name),
        Host::Ipv4(address) => address.is_loopback(),
        Host::Ipv6(address) => address.is_loopback(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dev() -> EgressPolicy {
        EgressPolicy { dev: true, ..EgressPolicy::default() }
    }

    fn http() -> EgressPolicy {
        EgressPolicy { allow_http: true, ..EgressPolicy::default() }
    }

    /// `ok`, or the code of the refusal.
    fn verdict(text: &str, policy: &EgressPolicy) -> &'static str {
        vet_url(text, policy).map_or_else(|refusal| refusal.code(), |_| "ok")
    }

    fn check(policy: &EgressPolicy, cases: &[(&str, &str)]) {
        for (text, expected) in cases {
            assert_eq!(verdict(text, policy), *expected, "{text:?}");
        }
    }

    #[test]
    fn url_is_stored_in_its_parsed_form() {
        let cases = [
            ("https://hooks.example.com", "https://hooks.example.com/"),
            ("HTTPS://HOOKS.example.COM:443/a/../b", "https://hooks.example.com/b"),
            ("https://hooks.example.com./in?a=b", "https://hooks.example.com./in?a=b"),
            ("https://bücher.example.com/ü", "https://xn--bcher-kva.example.com/%C3%BC"),
            ("https://0x08.8.2056/", "https://8.8.8.8/"),
        ];
        for (text, form) in cases {
            assert_eq!(vet_url(text, &EgressPolicy::default()).unwrap().as_str(), form);
        }
    }

    #[test]
    fn text_that_the_parser_would_repair_is_refused() {
        check(
            &http(),
            &[
                ("https://hooks.example.com/a b", "url_space_or_control"),
                ("https://hooks.example.com/\n", "url_space_or_control"),
                ("\u{0}https://hooks.example.com/", "url_space_or_control"),
                ("https://hooks.example.com/?q=\u{a0}", "url_space_or_control"),
                ("https://hooks.example.com/\u{7f}", "url_space_or_control"),
                ("https://hooks.example.com/?q=\u{85}", "url_space_or_control"),
                ("https:\\\\hooks.example.com/", "url_backslash"),
                ("https://hooks.example.com/?q=a\\b", "url_backslash"),
                ("https:hooks.example.com/", "url_slashes"),
                ("https:/hooks.example.com/", "url_slashes"),
                ("https:///hooks.example.com/", "url_slashes"),
                ("HtTp:////hooks.example.com/", "url_slashes"),
                ("https:", "url_slashes"),
                ("https://@hooks.example.com/", "url_userinfo"),
                ("https://:@hooks.example.com/", "url_userinfo"),
                ("https://a@hooks.example.com/", "url_userinfo"),
                ("https://hooks.example.com/@a?b@c", "ok"),
                ("https://hooks.example.com?@c", "ok"),
                ("https://hooks.example.com/#", "url_fragment"),
            ],
        );
    }

    #[test]
    fn schemes_are_https_and_http_where_permitted() {
        let url = "http://hooks.example.com/";
        check(&EgressPolicy::default(), &[(url, "url_http_not_allowed")]);
        check(&http(), &[(url, "ok"), ("ws://hooks.example.com/", "url_scheme")]);
        check(&dev(), &[(url, "ok"), ("ftp://127.0.0.1/", "url_scheme")]);
        check(
            &EgressPolicy::default(),
            &[
                ("javascript:alert(1)", "url_scheme"),
                ("mailto:a@example.com", "url_scheme"),
                ("httpss://hooks.example.com/", "url_scheme"),
                ("hooks.example.com", "url_malformed"),
                ("hooks.example.com:443", "url_scheme"),
                ("", "url_malformed"),
                (":", "url_malformed"),
            ],
        );
    }

    #[test]
    fn length_counts_as_given_and_as_encoded() {
        let url = |path: String| format!("https://hooks.example.com/{path}");
        let room = URL_BYTES_MAX - url(String::new()).len();
        let strict = EgressPolicy::default();
        assert_eq!(verdict(&url("x".repeat(room)), &strict), "ok");
        assert_eq!(verdict(&url("x".repeat(room + 1)), &strict), "url_too_long");
        // A character of 3 bytes that becomes 9 when encoded.
        assert_eq!(verdict(&url("€".repeat(room / 9)), &strict), "ok");
        assert_eq!(verdict(&url("€".repeat(room / 9 + 1)), &strict), "url_too_long");
    }

    #[test]
    fn every_port_is_decided_as_the_specification_lists_them() {
        for port in 0..=u16::MAX {
            let listed = [
                2375, 2376, 2379, 2380, 3306, 5432, 5984, 6379, 6443, 8500, 9200, 9300, 10250,
                11211, 27017,
            ];
            let is_allowed = port == 80 || port == 443 || (port >= 1024 && !listed.contains(&port));
            assert_eq!(vet_port(port, false).is_ok(), is_allowed, "{port}");
            assert_eq!(vet_port(port, true).is_ok(), port != 0, "{port}");
        }
    }

    #[test]
    fn dev_opens_loopback_on_every_port_and_nothing_else() {
        check(
            &dev(),
            &[
                ("http://127.0.0.1:1/", "ok"),
                ("http://127.9.9.9:6379/", "ok"),
                ("https://[::1]:22/", "ok"),
                ("http://localhost:9200/", "ok"),
                ("http://a.localhost.:3000/", "ok"),
                ("http://127.0.0.1:0/", "url_port"),
                ("http://hooks.example.com:22/", "url_port"),
                ("http://8.8.8.8:6379/", "url_port"),
                ("http://[::ffff:127.0.0.1]/", "url_address"),
                ("http://[::ffff:127.0.0.1]:22/", "url_port"),
                ("http://0.0.0.0/", "url_address"),
                ("http://10.0.0.1/", "url_address"),
                ("http://metadata/", "url_host_single_label"),
                ("http://localhost.localdomain/", "url_host_special_use"),
                ("http://db.internal/", "url_host_special_use"),
            ],
        );
        check(&http(), &[("http://127.0.0.1/", "url_address"), ("http://[::1]/", "url_address")]);
    }

    #[test]
    fn a_trusted_network_lifts_the_check_of_the_address_and_no_other() {
        let allow = vec!["10.0.0.0/8".parse().unwrap(), "127.0.0.0/8".parse().unwrap()];
        let policy = EgressPolicy { allow, ..EgressPolicy::default() };
        check(
            &policy,
            &[
                ("https://10.1.2.3/", "ok"),
                ("https://127.0.0.1:8443/", "ok"),
                ("http://10.1.2.3/", "url_http_not_allowed"),
                ("https://10.1.2.3:6379/", "url_port"),
                ("https://127.0.0.1:22/", "url_port"),
                ("https://localhost/", "url_host_single_label"),
                ("https://[::ffff:10.1.2.3]/", "url_address"),
                ("https://11.1.2.3/", "ok"),
                ("https://192.168.1.1/", "url_address"),
            ],
        );
    }

    #[test]
    fn every_refusal_has_a_code_of_its_own_and_says_what_to_do() {
        let strict = EgressPolicy::default();
        let name = |length| format!("https://{}.com/", "a.".repeat(length));
        let cases = [
            ("https://a.com/".to_owned() + &"x".repeat(2048), "url_too_long", "shorter"),
            ("https://a.com/ ".to_owned(), "url_space_or_control", "percent-encode"),
            ("https://a.com/\\".to_owned(), "url_backslash", "write"),
            ("https:/a.com".to_owned(), "url_slashes", "https://host/path"),
            ("https://a.com:x/".to_owned(), "url_malformed", "invalid port number"),
            ("ftp://a.com".to_owned(), "url_scheme", "use https"),
            ("http://a.com".to_owned(), "url_http_not_allowed", "egress.allow_http"),
            ("https://u:canary@a.com".to_owned(), "url_userinfo", "auth_token"),
            ("https://a.com#canary".to_owned(), "url_fragment", "remove"),
            ("https://a.com:22".to_owned(), "url_port", "use 443"),
            (name(126), "url_host_too_long", "shorter"),
            ("https://a..com".to_owned(), "url_host_malformed", "single dots"),
            ("https://a".to_owned(), "url_host_single_label", "hooks.example.com"),
            ("https://a.local".to_owned(), "url_host_special_use", "under .local are"),
            ("https://10.0.0.1".to_owned(), "url_address", "egress.allow"),
        ];
        for (text, code, advice) in cases {
            let refusal = vet_url(&text, &strict).unwrap_err();
            assert_eq!(refusal.code(), code, "{text}");
            let message = refusal.to_string();
            assert!(message.contains(advice), "{code}: {message}");
            assert!(!message.contains("canary") && !message.contains("10.0.0.1"), "{message}");
        }
    }

    #[test]
    fn an_own_address_looks_like_any_other_refused_one() {
        let own_addresses = vec!["9.9.9.9".parse().unwrap()];
        let policy = EgressPolicy { own_addresses, ..EgressPolicy::default() };
        let own = vet_url("https://9.9.9.9/", &policy).unwrap_err();
        let private = vet_url("https://10.0.0.1/", &policy).unwrap_err();
        assert_eq!(own.code(), private.code());
        assert_eq!(own.to_string(), private.to_string());
    }
}
