//! Every source, every kind of value, every kind of error.

use std::path::Path;

use postrider_domain::policy::{MeasuredFrom, RecoveryMode, Share};

use super::*;

fn file(text: &str) -> tempfile::NamedTempFile {
    use std::io::Write as _;
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

fn load(text: &str, variables: &[(&str, &str)], flags: &[&str]) -> Result<Loaded, ConfigError> {
    let file = file(text);
    let flags = flags.iter().map(|flag| Given::by_set(flag)).collect::<Result<_, _>>()?;
    Loaded::new(Some(file.path()), &Environment::of(variables), flags)
}

/// The only error, with the file's name removed.
fn fault(text: &str, variables: &[(&str, &str)], flags: &[&str]) -> String {
    let message = load(text, variables, flags).unwrap_err().to_string();
    assert!(!message.contains('\n'), "one fault expected: {message}");
    match message.split_once(':') {
        Some((place, rest)) if place.starts_with('/') => format!("FILE:{rest}"),
        _ => message,
    }
}

#[test]
fn without_any_configuration_the_defaults_are_the_contract() {
    let loaded = Loaded::new(None, &Environment::default(), Vec::new()).unwrap();
    assert_eq!(loaded.config.listen.to_string(), "127.0.0.1:8080");
    assert_eq!(loaded.config.data_dir, Path::new("./postrider-data"));
    assert_eq!(loaded.policy(), Policy::default());
    assert_eq!(loaded.config.egress, EgressPolicy::default());
    assert!(loaded.shown().iter().all(|one| one.origin == Origin::Default));
}

#[test]
fn flags_are_stronger_than_the_environment_and_that_than_the_file() {
    let text = "[retry]\nmax = 3\nunit = \"1s\"\njitter = 0.25\n";
    let variables =
        [("POSTRIDER_RETRY__MAX", "4"), ("POSTRIDER_RETRY__UNIT", "2s"), ("POSTRIDER_KEY", "x")];
    let loaded = load(text, &variables, &["retry.max=5"]).unwrap();
    let retry = &loaded.config.policy.retry;
    assert_eq!((retry.max, retry.unit), (5, Duration::from_secs(2)));
    assert_eq!(retry.jitter, Share::percent(25));
    assert_eq!(loaded.origin("retry.max"), Origin::Flag("--set retry.max".into()));
    assert_eq!(
        loaded.origin("retry.unit").to_string(),
        "environment variable POSTRIDER_RETRY__UNIT"
    );
    assert!(matches!(loaded.origin("retry.jitter"), Origin::File { line: 4, .. }));
    assert_eq!(loaded.origin("retry.measured_from"), Origin::Default);
}

#[test]
fn values_are_written_as_people_write_them() {
    let text = r#"
        recovery = "drain"
        egress.allow = ["10.0.0.0/8", "fd00::/8", "192.0.2.1"]
        dns.nameservers = ["192.0.2.53", "[2001:db8::53]:5353"]
        retention.finished = "30d"
        retry.measured_from = "previous_attempt"
        limits.tenant_events_per_second = 12
        circuit = { disable_share = 1, probe_interval = "1h30m" }
    "#;
    let variables = [
        ("POSTRIDER_CIRCUIT__FREEZE_CONSECUTIVE", "60_000"),
        ("POSTRIDER_MASS_FAILURE__SHARE", "45%"),
        ("POSTRIDER_EGRESS__ALLOW_HTTP", "true"),
        ("POSTRIDER_EGRESS__OWN_ADDRESSES", "192.0.2.7, 2001:db8::7"),
    ];
    let config = load(text, &variables, &[]).unwrap().config;
    assert_eq!(config.policy.recovery.mode, RecoveryMode::Drain);
    assert_eq!(config.egress.allow.len(), 3);
    assert_eq!(config.egress.allow[2].to_string(), "192.0.2.1/32");
    assert!(config.egress.allow_http && !config.egress.dev);
    assert_eq!(config.egress.own_addresses.len(), 2);
    assert_eq!(config.policy.retry.measured_from, MeasuredFrom::PreviousAttempt);
    assert_eq!(config.policy.circuit.disable_share, Share::ALL);
    assert_eq!(config.policy.circuit.probe_interval, Duration::from_secs(5400));
    assert_eq!(config.policy.circuit.freeze_consecutive, 60_000);
    assert_eq!(config.policy.mass_failure.share, Share::percent(45));
    assert_eq!(config.limits.tenant_events, Some(12));
}

#[test]
fn shown_duration_parses_to_the_same_duration() {
    for (text, ms, shown) in [
        ("84800ms", 84_800, "84800ms"),
        ("10m", 600_000, "10m"),
        ("72h", 259_200_000, "72h"),
        ("30d", 2_592_000_000, "30d"),
        ("1h30m", 5_400_000, "90m"),
        ("0s", 0, "0ms"),
        ("5s", 5_000, "5s"),
    ] {
        let duration = value::parse_duration(text).unwrap();
        assert_eq!(duration.as_millis(), ms, "{text}");
        assert_eq!(value::show_duration(duration), shown);
        assert_eq!(value::parse_duration(shown), Some(duration));
    }
    for bad in ["", "10", "m", "10 minutes", "-1s", "1.5s", "1w", "99999999999999999999h"] {
        assert_eq!(value::parse_duration(bad), None, "{bad}");
    }
}

#[test]
fn a_bad_line_of_the_file_is_named_with_what_would_be_right() {
    for (text, expected) in [
        (
            "\n\n[retry]\nmaks = 3\n",
            "FILE:4: unknown setting `retry.maks`; did you mean `retry.max`?",
        ),
        ("[retri]\nmax = 3", "FILE:1: unknown setting `retri`; did you mean `retry`?"),
        ("[retri]\n", "FILE:1: unknown setting `retri`; did you mean `retry`?"),
        ("retry.max = \"eleven\"", "FILE:1: `retry.max` must be a whole number, not \"eleven\""),
        ("retry.max = -1", "FILE:1: `retry.max` must be a whole number, not -1"),
        (
            "retry.unit = 84800",
            "FILE:1: `retry.unit` must be a duration such as \"84800ms\", \"10m\", \"72h\" or \
             \"1h30m\", not 84800",
        ),
        (
            "circuit.disable_share = 70",
            "FILE:1: `circuit.disable_share` must be a share from 0 to 1, such as 0.7, not 70",
        ),
        (
            "egress.allow = [\"10.0.0.1/8\"]",
            "FILE:1: `egress.allow` must be a list of networks such as [\"10.0.0.0/8\", \
             \"fd00::/8\"], not a list",
        ),
        ("dev = \"yes\"", "FILE:1: `dev` must be true or false, not \"yes\""),
        (
            "recovery.mode = \"fast\"",
            "FILE:1: `recovery.mode` must be \"slots\" or \"drain\", not \"fast\"",
        ),
        ("# fine\nretry.max = 101", "FILE:2: `retry.max` must be at most 100"),
        ("dns.ttl_min = \"2m\"", "FILE:1: `dns.ttl_min` must not be longer than dns.ttl_max"),
        (
            "telemetry.log = \"loud\"",
            "FILE:1: `telemetry.log` must be error, warn, info, debug, trace, or a filter such as \
             \"info,postrider=debug\"",
        ),
        (
            "tls.client_key = \"key.pem\"",
            "FILE:1: `tls.client_key` needs tls.client_certificate beside it",
        ),
        (
            "proxy.url = \"ftp://proxy:1\"",
            "FILE:1: `proxy.url` must be http://host:port or socks5://host:port",
        ),
    ] {
        assert_eq!(fault(text, &[], &[]), expected, "{text}");
    }
    assert!(fault("a = 1\nretry.max = = 3\n", &[], &[]).starts_with("FILE:2: not TOML: "));
}

#[test]
fn a_bad_variable_or_flag_is_named() {
    assert_eq!(
        fault("", &[("POSTRIDER_RETRY_MAX", "3")], &[]),
        "environment variable POSTRIDER_RETRY_MAX: unknown setting; did you mean \
         POSTRIDER_RETRY__MAX?"
    );
    assert_eq!(
        fault("", &[("POSTRIDER_RETRY__MAX", "many")], &[]),
        "environment variable POSTRIDER_RETRY__MAX: `retry.max` must be a whole number, not \"many\""
    );
    assert_eq!(
        fault("", &[], &["listen=8080"]),
        "flag --set listen: `listen` must be an address with a port, such as \"127.0.0.1:8080\" or \
         \"[::1]:8080\", not \"8080\""
    );
    assert!(fault("", &[], &["retry.max"]).contains("write --set key=value"));
    // Variables that Kubernetes sets for a service of this name are ignored.
    let of_a_service = [
        ("POSTRIDER_PORT", "tcp://10.0.0.1:80"),
        ("POSTRIDER_PORT_80_TCP", "tcp://10.0.0.1:80"),
        ("POSTRIDER_SERVICE_HOST", "10.0.0.1"),
    ];
    assert!(load("", &of_a_service, &[]).is_ok());
    // Those of the portal are settings, although they begin alike.
    let origins = [("POSTRIDER_PORTAL__FRAME_ANCESTORS", "https://app.example.com")];
    let loaded = load("", &origins, &[]).unwrap();
    assert_ne!(
        loaded.config.api.frame_ancestors,
        postrider_api::ApiSettings::default().frame_ancestors
    );
}

#[test]
fn all_configuration_errors_are_reported_at_once() {
    let error = load("retry.max = true\nfoo = 1\n", &[("POSTRIDER_BAR", "1")], &[]).unwrap_err();
    assert_eq!(error.to_string().lines().count(), 3, "{error}");
}

#[test]
fn missing_configuration_file_is_reported() {
    let missing = Path::new("/nonexistent/postrider.toml");
    let error = Loaded::new(Some(missing), &Environment::default(), Vec::new()).unwrap_err();
    assert!(error.to_string().contains("/nonexistent/postrider.toml:1: cannot be read"), "{error}");
}

#[test]
fn workfronts_api_is_off_unless_set_and_on_with_dev_unless_set() {
    for (flags, is_on) in [
        (&[][..], false),
        (&["dev=true"][..], true),
        (&["dev=true", "workfront.enabled=false"][..], false),
        (&["workfront.enabled=true"][..], true),
    ] {
        let loaded = load("", &[], flags).unwrap();
        assert_eq!(loaded.config.api.workfront, is_on, "{flags:?}");
    }
}

#[test]
fn time_scale_is_refused_without_dev() {
    let refused = fault("", &[], &["time_scale=1000"]);
    assert!(refused.starts_with("flag --set time_scale: `time_scale` is for demonstrations"));
    let loaded = load("", &[], &["time_scale=1000", "dev=true"]).unwrap();
    assert_eq!(loaded.policy().circuit.probe_interval, Duration::from_millis(600));
    assert!(loaded.config.egress.dev);
    assert!(load("", &[], &["time_scale=1"]).is_ok());
    assert!(fault("", &[], &["time_scale=0"]).contains("a whole number from 1"));
}

#[test]
fn secrets_are_never_shown() {
    let canary = "canary-canary-canary-canary";
    let variables = [
        ("POSTRIDER_ADMIN_KEY", canary),
        ("POSTRIDER_PROXY__PASSWORD", canary),
        ("POSTRIDER_PROXY__USER", "u"),
    ];
    let loaded = load("", &variables, &[]).unwrap();
    let shown = loaded.shown();
    let printed = show::toml(&shown) + &show::json(&shown).to_string();
    assert!(!printed.contains("canary"), "{printed}");
    assert!(printed.contains("admin_key = \"***\""));
    let store = StoreChoice::Postgres("postgres://u:canary@db/postrider".to_owned());
    assert_eq!(value::Value::show(&store), "postgres://u:***@db/postrider");
    for (given, expected) in [
        ("postgres://db/postrider?password=canary", "postgres://db/postrider?password=***"),
        ("postgres://u:c%61nary@db/x", "postgres://u:***@db/x"),
    ] {
        let loaded = load("", &[("POSTRIDER_STORE", given)], &[]).unwrap();
        let shown = show::toml(&loaded.shown()) + &show::json(&loaded.shown()).to_string();
        assert!(shown.contains(expected) && !shown.contains("canary"), "{shown}");
    }
    for mistyped in [
        "postgre://u:canary@db/postrider",
        "postgres:/u:canary@db/postrider",
        "u:canary@db/postrider",
        "host=db password=canary",
        "postgres://u:canary@db:port/postrider",
        "postgres://db/postrider?sslmode=canary",
    ] {
        let quoted = format!("store = \"{mistyped}\"");
        let half_quoted = format!("store = \"{mistyped}");
        let by_set = format!("store={mistyped}");
        for refused in [
            fault("", &[("POSTRIDER_STORE", mistyped)], &[]),
            fault(&quoted, &[], &[]),
            fault(&half_quoted, &[], &[]),
            fault("", &[], &[&by_set]),
        ] {
            assert!(!refused.contains("canary"), "{refused}");
        }
        let by_set = Given::by_set(mistyped).map(|given| format!("{:?}", given.origin));
        assert!(!format!("{by_set:?}").contains("canary"), "{by_set:?}");
    }
    let refused = fault("", &[("POSTRIDER_STORE", "embeded")], &[]);
    assert!(refused.contains("not \"embeded\""), "{refused}");
    let refused = fault("", &[("POSTRIDER_ADMIN_KEY", "canary")], &[]);
    assert!(refused.contains("24 to 256") && !refused.contains("canary"), "{refused}");
}

#[test]
fn printed_configuration_can_be_read_again_and_is_the_same() {
    let text = "retry.max = 7\negress.allow = [\"10.0.0.0/8\"]\nlimits.key_requests_per_second = 5\n\
                telemetry.log = \"warn,postrider=debug\"\ncircuit.disable_share = 0.123456\n";
    for text in ["", text] {
        let shown = load(text, &[], &[]).unwrap().shown();
        let again = load(&show::toml(&shown), &[], &[]).unwrap().shown();
        let values = |shown: &[Shown]| -> Vec<_> {
            shown.iter().map(|one| (one.key, one.value.clone())).collect()
        };
        assert_eq!(values(&shown), values(&again));
    }
}

#[test]
fn every_number_of_the_policy_can_be_set() {
    // A setting of the policy that is missing here would show up as a difference.
    let text = r#"
        attempt = { deadline = "4s", response_body_bytes_max = 1 }
        retry = { unit = "1s", max = 1, measured_from = "previous_attempt", jitter = 0.1 }
        recovery = { mode = "drain", ramp_step = "2s", dead = "replay", dead_max_age = "1h", dead_per_second = 1 }
        mass_failure = { window = "1s", destinations_min = 1, share = 0.1, hold_max = "1s" }
        retention.finished = "1h"
        [policy_limits]
        retry_unit_min = "2s"
        retry_max = 3
        retry_span_max = "2h"
        attempt_deadline_max = "6s"
        dead_max_age_max = "2h"
        rate_limit_max = 9
        [circuit]
        disable_share = 0.1
        disable_grace = 1
        disable_consecutive = 1
        probe_interval = "1s"
        freeze_over_consecutive = 1
        freeze_after = "1s"
        freeze_consecutive = 1
    "#;
    let changed = format!("{:?}", load(text, &[], &[]).unwrap().config.policy);
    let default = format!("{:?}", Policy::default());
    let values = |text: &str| -> Vec<_> {
        text.split([',', '{']).filter(|part| !part.ends_with(' ')).map(str::to_owned).collect()
    };
    // The scale of time is a flag of the command line, not a number of the policy.
    let is_number = |part: &str| !part.trim_start().starts_with("time_scale");
    for (changed, default) in values(&changed).iter().zip(values(&default)) {
        assert!(*changed != default || !is_number(changed), "{changed}");
    }
}

/// Any contents of the file or the environment are accepted or refused with a place.
#[test]
fn nothing_in_a_file_breaks_the_configuration() {
    let seeds: [&[u8]; 4] = [
        b"listen = \"127.0.0.1:80\"\n[retry]\nmax = 3\nunit = \"1h30m\"\njitter = 0.25\n",
        b"egress.allow = [\"10.0.0.0/8\", \"fd00::/8\"]\n[proxy]\nurl = \"socks5://h:1\"\n",
        b"circuit = { disable_share = \"70%\", probe_interval = \"10m\" }\nrecovery = \"drain\"\n",
        b"[telemetry]\nlog = \"info,postrider=debug\"\nformat = \"json\"\nattempts = true\n",
    ];
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("postrider.toml");
    let (mut runs, mut read) = (0, 0);
    for number in 0..4_000 {
        std::fs::write(&path, postrider_domain::fuzzing::stir(&seeds, number)).unwrap();
        match Loaded::new(Some(&path), &Environment::default(), Vec::new()) {
            Ok(loaded) => {
                assert_eq!(loaded.config.policy.validate(), Ok(()));
                read += 1;
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
        runs += 1;
    }
    assert!(read > 50, "{read}");
    println!("fuzz: configuration, {runs} files, {read} read, 0 failures");
}

#[test]
fn a_running_server_takes_the_live_settings_and_names_the_others() {
    let mut current = load("", &[], &[]).unwrap();
    let text = "retry.max = 7\nhttp.headers_max = 50\ntelemetry.log = \"debug\"\n\
                metrics.key = \"a-key-of-24-characters-or-more\"\n";
    let changed = current.take_changes(&load(text, &[], &[]).unwrap());
    assert_eq!(changed.taken, ["retry.max", "telemetry.log"]);
    assert_eq!(changed.needs_restart, ["http.headers_max", "metrics.key"]);
    assert_eq!(
        (current.config.policy.retry.max, current.config.telemetry.log.as_str()),
        (7, "debug")
    );
    assert_ne!(current.config.http.headers_max, 50);
    assert!(matches!(current.origin("retry.max"), Origin::File { .. }));
    let changed = current.take_changes(&load("", &[], &[]).unwrap());
    assert_eq!(changed.taken, ["retry.max", "telemetry.log"], "the defaults are in force again");
    assert!(matches!(current.origin("retry.max"), Origin::Default));
}
