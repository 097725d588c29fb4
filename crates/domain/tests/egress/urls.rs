//! Properties of the URL check: arbitrary texts, URLs assembled from awkward parts, and mutations
//! of the hostile ones.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

use postrider_domain::egress::{DestinationUrl, EgressPolicy, Host, vet_address, vet_url};
use proptest::prelude::*;
use proptest::sample::{Index, select};

use crate::oracle;
use crate::table::{Row, rows, with_http};

static ROWS: LazyLock<Vec<Row>> = LazyLock::new(rows);

/// Properties of every URL that is accepted under `policy`, which has no `dev`.
fn assert_harmless(url: &DestinationUrl, policy: &EgressPolicy) -> Result<(), TestCaseError> {
    let address: IpAddr = match url.host() {
        Host::Ipv4(address) => address.into(),
        Host::Ipv6(address) => address.into(),
        Host::Domain(name) => {
            prop_assert!(!oracle::might_be_read_as_v4(name), "{} may be an address", name);
            prop_assert!(name.parse::<IpAddr>().is_err(), "{} is an address", name);
            let (_, last) =
                name.trim_end_matches('.').rsplit_once('.').unwrap_or(("", "localhost"));
            prop_assert!(!["localhost", "internal", "local", "svc"].contains(&last), "{}", name);
            return Ok(());
        }
    };
    prop_assert!(oracle::is_public(address), "{} is not public", address);
    prop_assert_eq!(vet_address(address, policy), Ok(()));
    Ok(())
}

/// Vetting an accepted URL again, or reading it from a store, changes nothing.
fn assert_stable(url: &DestinationUrl, policy: &EgressPolicy) -> Result<(), TestCaseError> {
    prop_assert_eq!(&vet_url(url.as_str(), policy), &Ok(url.clone()));
    prop_assert_eq!(&DestinationUrl::from_trusted(url.as_str()), &Ok(url.clone()));
    prop_assert!(url.as_str().len() <= 2048 && url.path_and_query().starts_with('/'));
    prop_assert!(url.as_str().bytes().all(|b| b.is_ascii_graphic()), "{}", url);
    Ok(())
}

fn assert_all(text: &str) -> Result<bool, TestCaseError> {
    let mut accepted = false;
    for policy in [EgressPolicy::default(), with_http()] {
        if let Ok(url) = vet_url(text, &policy) {
            accepted = true;
            assert_harmless(&url, &policy)?;
            assert_stable(&url, &policy)?;
        }
    }
    let dev = EgressPolicy { dev: true, ..EgressPolicy::default() };
    if let Ok(url) = vet_url(text, &dev) {
        assert_stable(&url, &dev)?;
    }
    Ok(accepted)
}

/// A URL of unusual parts, some of which are valid together.
fn assembled() -> impl Strategy<Value = String> {
    let scheme =
        select(vec!["https://", "http://", "HTTPS://", "https:/", "https:", "ws://", "//"]);
    let label = prop_oneof![
        "[a-z0-9-]{1,6}",
        "[0-9]{1,4}",
        "0x[0-9a-fA-F]{0,4}",
        "\\PC{1,3}",
        select(vec![
            "",
            "com",
            "example",
            "localhost",
            "internal",
            "xn--bcher-kva",
            "１２７",
            "%31"
        ])
        .prop_map(str::to_owned),
    ];
    let name = prop::collection::vec(label, 1..6).prop_map(|labels| labels.join("."));
    let v6 = "\\[[0-9a-f:.]{2,20}\\]";
    let literal = any::<u128>().prop_map(|bits| format!("[{}]", Ipv6Addr::from(bits)));
    let public =
        any::<u128>().prop_map(|bits| format!("[{}]", Ipv6Addr::from(bits >> 3 | 1 << 125)));
    let v4 = any::<u32>().prop_map(|bits| Ipv4Addr::from(bits).to_string());
    let host = prop_oneof![4 => name, 1 => v6, 1 => literal, 1 => public, 2 => v4];
    let port = prop_oneof![
        3 => Just(String::new()),
        1 => any::<u16>().prop_map(|port| format!(":{port}")),
        1 => ":[0-9a-z]{0,5}",
    ];
    let rest = prop_oneof![Just(String::new()), "/[a-z%@:.?&=/]{0,20}", "[/?#]\\PC{0,10}"];
    (scheme, host, port, rest)
        .prop_map(|(scheme, host, port, rest)| scheme.to_owned() + &host + &port + &rest)
}

/// One small change of a URL, at a place that `at` picks.
#[derive(Debug, Clone, Copy)]
enum Mutation {
    FlipCase,
    PercentEncode,
    TrailingDot,
    FullWidth,
    IdeographicStop,
    Port(u16),
    SoftHyphen,
    Https,
}

fn mutation() -> impl Strategy<Value = Mutation> {
    prop_oneof![
        Just(Mutation::FlipCase),
        Just(Mutation::PercentEncode),
        Just(Mutation::TrailingDot),
        Just(Mutation::FullWidth),
        Just(Mutation::IdeographicStop),
        select(vec![0, 22, 80, 443, 1024, 6379, 8080, 8443, 65535]).prop_map(Mutation::Port),
        Just(Mutation::SoftHyphen),
        Just(Mutation::Https),
    ]
}

fn mutate(url: &str, mutation: Mutation, at: Index) -> String {
    // Mutate within the authority, if there is one: changes matter there.
    let start = url.find("//").map_or(0, |slashes| slashes + 2);
    let end = url[start..].find(['/', '?', '#']).map_or(url.len(), |end| start + end);
    let (before, authority, after) = (&url[..start], &url[start..end], &url[end..]);
    let mut characters: Vec<String> = authority.chars().map(String::from).collect();
    let replace = |characters: &mut Vec<String>, change: &dyn Fn(char) -> Option<String>| {
        let places: Vec<usize> = (0..characters.len())
            .filter(|&place| characters[place].chars().next().and_then(change).is_some())
            .collect();
        if !places.is_empty() {
            let place = places[at.index(places.len())];
            let changed = characters[place].chars().next().and_then(change);
            characters[place] = changed.unwrap_or_default();
        }
    };
    match mutation {
        Mutation::FlipCase => replace(&mut characters, &|c| {
            let flipped = if c.is_ascii_lowercase() {
                c.to_ascii_uppercase()
            } else {
                c.to_ascii_lowercase()
            };
            (flipped != c).then(|| flipped.to_string())
        }),
        Mutation::PercentEncode => replace(&mut characters, &|c| {
            Some(c.to_string().bytes().map(|byte| format!("%{byte:02x}")).collect())
        }),
        Mutation::FullWidth => replace(&mut characters, &|c| {
            c.is_ascii_alphanumeric()
                .then(|| char::from_u32(u32::from(c) + 0xfee0).into_iter().collect())
        }),
        Mutation::IdeographicStop => {
            replace(&mut characters, &|c| (c == '.').then(|| "\u{3002}".to_owned()));
        }
        Mutation::TrailingDot => characters.push(".".to_owned()),
        Mutation::Port(port) => characters.push(format!(":{port}")),
        Mutation::SoftHyphen => {
            characters.insert(at.index(characters.len() + 1), "\u{ad}".to_owned())
        }
        Mutation::Https => return url.replacen("http:", "https:", 1),
    }
    format!("{before}{}{after}", characters.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn no_text_makes_it_panic(text in prop_oneof!["\\PC*", any::<String>(), "https?://\\PC*"]) {
        assert_all(&text)?;
    }

    #[test]
    fn accepted_url_is_harmless_and_stable(text in assembled()) {
        assert_all(&text)?;
    }

    #[test]
    fn every_address_is_refused_as_a_url_where_it_is_refused_as_an_address(bits in any::<u32>()) {
        let address = Ipv4Addr::from_bits(bits);
        let vetted = vet_address(address.into(), &EgressPolicy::default()).is_ok();
        let [a, b, c, d] = address.octets();
        let low = bits & 0xff_ffff;
        for host in [
            format!("{address}"),
            format!("{bits}"),
            format!("{bits:#x}"),
            format!("0{bits:o}"),
            format!("{a}.{low}"),
            format!("{a:#x}.0{b:o}.{c}.{d}"),
            format!("{address}."),
        ] {
            let url = vet_url(&format!("https://{host}/"), &EgressPolicy::default());
            prop_assert_eq!(url.is_ok(), vetted, "{}", host);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn no_mutation_of_a_hostile_url_gets_through(
        row in any::<Index>(),
        mutations in prop::collection::vec((mutation(), any::<Index>()), 1..5),
    ) {
        let row = &ROWS[row.index(ROWS.len())];
        let mut url = row.url.clone();
        for (mutation, at) in mutations {
            url = mutate(&url, mutation, at);
        }
        let accepted = assert_all(&url)?;
        // The host of such a URL decides, so no other spelling of it may lead elsewhere.
        let is_hopeless = ["ip4 ", "ip6 ", "single label", "special-use name", "userinfo"]
            .iter()
            .any(|why| row.why.starts_with(why));
        prop_assert!(!(is_hopeless && accepted), "{:?} became {:?}", row.url, url);
    }
}

#[test]
fn the_generators_reach_both_verdicts() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;

    let mut runner = TestRunner::deterministic();
    let (mut accepted, mut names, mut literals) = (0, 0, 0);
    for _ in 0..4_000 {
        let text = assembled().new_tree(&mut runner).unwrap().current();
        if let Ok(url) = vet_url(&text, &with_http()) {
            accepted += 1;
            match url.host() {
                Host::Domain(_) => names += 1,
                Host::Ipv4(_) | Host::Ipv6(_) => literals += 1,
            }
        }
    }
    assert!(accepted < 3_000 && names > 50 && literals > 50, "{accepted} {names} {literals}");
}
