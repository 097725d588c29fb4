//! The tools: a table from which their descriptions, their schemas and their requests are made.

use hyper::Method;
use postrider_client::{Call, Client};
use serde_json::{Map, Value as Json, json};

use super::answer;

/// How many entries of a list are given where the assistant asks for none, and at most.
const ENTRIES: (u64, u64) = (20, 100);

/// One tool, which is one call of the API.
pub(super) struct Tool {
    pub(super) name: &'static str,
    title: &'static str,
    about: &'static str,
    /// Whether it changes something.
    pub(super) writes: bool,
    method: Method,
    /// `{id}` is replaced by the argument `id`.
    path: &'static str,
    arguments: &'static [Argument],
    /// Arguments that are always sent.
    fixed: &'static [(&'static str, u64)],
}

/// One argument of a tool.
struct Argument {
    name: &'static str,
    about: &'static str,
    kind: Kind,
    required: bool,
}

#[derive(Clone, Copy)]
enum Kind {
    Text,
    /// RFC 3339.
    Time,
    Word(&'static [&'static str]),
    Number {
        max: u64,
    },
    Flag,
    Object,
}

const fn given(name: &'static str, kind: Kind, about: &'static str) -> Argument {
    Argument { name, about, kind, required: false }
}

const fn required(name: &'static str, kind: Kind, about: &'static str) -> Argument {
    Argument { name, about, kind, required: true }
}

const LIMIT: Argument =
    given("limit", Kind::Number { max: ENTRIES.1 }, "Entries, at most 100; 20 if left out.");
const CURSOR: Argument = given("cursor", Kind::Text, "`next_cursor` of the page before.");
const SINCE: Argument = given("since", Kind::Time, "Accepted at this time or later.");
const UNTIL: Argument = given("until", Kind::Time, "Accepted before this time.");
const TYPE: Argument = given("type", Kind::Text, "Of events of this type, such as `task.updated`.");
const DESTINATION: Argument = given("destination", Kind::Text, "Of this destination (`dst_…`).");
const SUBSCRIPTION: Argument = given("subscription", Kind::Text, "Of this subscription (`sub_…`).");
const DELIVERY_ID: Argument =
    required("id", Kind::Text, "The delivery (`dlv_…`), which the receiver sees as `webhook-id`.");
const DESTINATION_ID: Argument = required("id", Kind::Text, "The destination (`dst_…`).");
const EVENT_ID: Argument =
    required("id", Kind::Text, "The event (`evt_…`, or the application's own id).");
const STATES: &[&str] = &["queued", "in_flight", "waiting", "delivered", "dead", "cancelled"];
const CIRCUITS: &[&str] = &["enabled", "disabled", "frozen"];

const READ: Tool = Tool {
    name: "",
    title: "",
    about: "",
    writes: false,
    method: Method::GET,
    path: "",
    arguments: &[],
    fixed: &[],
};
const WRITE: Tool = Tool { writes: true, method: Method::POST, ..READ };

/// All tools.
pub(super) const TOOLS: &[Tool] = &[
    Tool {
        name: "ledger",
        title: "Ledger",
        about: "Counts of all deliveries of the tenant: accepted = queued + in_flight + waiting + delivered + dead + cancelled.",
        path: "/v1/ledger",
        ..READ
    },
    Tool {
        name: "explain_delivery",
        title: "Explain a delivery",
        about: "Where a delivery stands, why, what happens next, and what somebody can do about it.",
        path: "/v1/deliveries/{id}/explain",
        arguments: &[DELIVERY_ID],
        ..READ
    },
    Tool {
        name: "get_delivery",
        title: "Show a delivery",
        about: "A delivery with its schedule and every attempt: status, error, timings, and the beginning of the receiver's answer.",
        path: "/v1/deliveries/{id}",
        arguments: &[DELIVERY_ID],
        ..READ
    },
    Tool {
        name: "list_deliveries",
        title: "List deliveries",
        about: "Deliveries, newest first. One delivery is one event owed to one subscription.",
        path: "/v1/deliveries",
        arguments: &[
            given("state", Kind::Word(STATES), "In this state."),
            DESTINATION,
            SUBSCRIPTION,
            given("event", Kind::Text, "Of this event."),
            TYPE,
            SINCE,
            UNTIL,
            LIMIT,
            CURSOR,
        ],
        ..READ
    },
    Tool {
        name: "list_destinations",
        title: "List destinations",
        about: "URLs with their circuits: counters, thresholds, and why one is disabled (probed every ten minutes) or frozen (until somebody enables it).",
        path: "/v1/destinations",
        arguments: &[
            given("state", Kind::Word(CIRCUITS), "In this state."),
            given("q", Kind::Text, "Whose URL has this text in it."),
            LIMIT,
            CURSOR,
        ],
        ..READ
    },
    Tool {
        name: "get_destination",
        title: "Show a destination",
        about: "One URL with its circuit.",
        path: "/v1/destinations/{id}",
        arguments: &[DESTINATION_ID],
        ..READ
    },
    Tool {
        name: "destination_timeline",
        title: "Timeline of a destination",
        about: "Every change of a destination's state and every probe, newest first, with the evidence.",
        path: "/v1/destinations/{id}/timeline",
        arguments: &[DESTINATION_ID, LIMIT, CURSOR],
        ..READ
    },
    Tool {
        name: "list_events",
        title: "List events",
        about: "Events, newest first, without their payloads.",
        path: "/v1/events",
        arguments: &[TYPE, SINCE, UNTIL, LIMIT, CURSOR],
        ..READ
    },
    Tool {
        name: "get_event",
        title: "Show an event",
        about: "One event with its payload and its deliveries.",
        path: "/v1/events/{id}",
        arguments: &[EVENT_ID],
        ..READ
    },
    Tool {
        name: "event_matches",
        title: "Who wants an event",
        about: "For every subscription whether it wants this event, and why not: type, object, filter condition by condition.",
        path: "/v1/events/{id}/matches",
        arguments: &[EVENT_ID, LIMIT, CURSOR],
        ..READ
    },
    Tool {
        name: "list_subscriptions",
        title: "List subscriptions",
        about: "Subscriptions with URL, types and filter. Tokens and headers are masked.",
        path: "/v1/subscriptions",
        arguments: &[DESTINATION, LIMIT, CURSOR],
        ..READ
    },
    Tool {
        name: "simulate",
        title: "Simulate an outage",
        about: "Forecasts what retry and circuit policies do while one URL is down: delivered, late, dead, backlog, times of recovery. Nothing is sent.",
        method: Method::POST,
        path: "/v1/simulate",
        arguments: &[
            required(
                "deliveries",
                Kind::Number { max: u64::MAX },
                "So many deliveries in `per_seconds` seconds.",
            ),
            given("per_seconds", Kind::Number { max: u64::MAX }, "1 if left out."),
            required(
                "outage_seconds",
                Kind::Number { max: 31_536_000 },
                "How long every attempt fails.",
            ),
            given(
                "enable_after_seconds",
                Kind::Number { max: u64::MAX },
                "How long after the outage somebody enables the URL, should it be frozen.",
            ),
            given(
                "policy",
                Kind::Object,
                "Settings to try, in the shape of GET /v1/policy: retry, circuit, recovery.",
            ),
        ],
        fixed: &[("samples", 10)],
        ..READ
    },
    Tool {
        name: "enable_destination",
        title: "Enable a destination",
        about: "Enables a disabled or frozen destination, and optionally sends what waits (`drain`) or replays what died.",
        path: "/v1/destinations/{id}/enable",
        arguments: &[
            DESTINATION_ID,
            required("reason", Kind::Text, "Why; it stands in the timeline."),
            given(
                "waiting",
                Kind::Word(&["slots", "drain"]),
                "What waits follows its slots, or is sent at once by a ramp.",
            ),
            given("dead_since", Kind::Time, "Replays what died there at this time or later."),
        ],
        ..WRITE
    },
    Tool {
        name: "retry_delivery",
        title: "Retry a delivery",
        about: "Attempts a waiting delivery now, without waiting for its slot.",
        path: "/v1/deliveries/{id}/retry",
        arguments: &[DELIVERY_ID],
        ..WRITE
    },
    Tool {
        name: "replay_delivery",
        title: "Replay a delivery",
        about: "Sends a delivery that has ended (dead, delivered or cancelled) once more.",
        path: "/v1/deliveries/{id}/replay",
        arguments: &[DELIVERY_ID],
        ..WRITE
    },
    Tool {
        name: "replay_many",
        title: "Replay many deliveries",
        about: "Replays all deliveries that fit. Call it with `dry_run` true first: it answers how many there are and sends nothing.",
        path: "/v1/replays",
        arguments: &[
            required("dry_run", Kind::Flag, "Only count the deliveries."),
            given(
                "state",
                Kind::Word(&["dead", "delivered", "cancelled", "waiting"]),
                "`dead` if left out.",
            ),
            DESTINATION,
            SUBSCRIPTION,
            TYPE,
            SINCE,
            UNTIL,
            given("ended_since", Kind::Time, "Ended at this time or later."),
            given("per_second", Kind::Number { max: 100_000 }, "At most so many a second."),
        ],
        ..WRITE
    },
];

impl Tool {
    /// As `tools/list` has it.
    pub(super) fn described(&self) -> Json {
        let properties: Map<_, _> =
            self.arguments.iter().map(|one| (one.name.to_owned(), one.schema())).collect();
        let required: Vec<_> =
            self.arguments.iter().filter(|one| one.required).map(|one| one.name).collect();
        json!({
            "name": self.name,
            "title": self.title,
            "description": self.about,
            "inputSchema": {
                "type": "object",
                "properties": properties,
                "required": required,
                "additionalProperties": false,
            },
            "annotations": { "readOnlyHint": !self.writes, "destructiveHint": false, "openWorldHint": false },
        })
    }

    /// The result of a call: the answer of the server, or why it failed, for the assistant to read.
    pub(super) async fn call(&self, api: &Client, arguments: &Json) -> Json {
        let result = match self.request(arguments) {
            Ok(call) => api.call::<Json>(&call).await.map_err(|error| error.to_string()),
            Err(what) => Err(what),
        };
        let (text, is_error) = match result {
            Ok(value) => (answer::bounded(value), false),
            Err(what) => (answer::bounded(Json::String(what)), true),
        };
        json!({ "content": [{ "type": "text", "text": text }], "isError": is_error })
    }

    /// The request for these arguments.
    fn request(&self, arguments: &Json) -> Result<Call, String> {
        let empty = Map::new();
        let given = match arguments {
            Json::Null => &empty,
            Json::Object(given) => given,
            Json::Bool(_) | Json::Number(_) | Json::String(_) | Json::Array(_) => {
                return Err("the arguments must be an object".to_owned());
            }
        };
        if let Some(name) = given.keys().find(|name| self.argument(name).is_none()) {
            return Err(format!("{} has no argument {name:?}", self.name));
        }
        let mut values = Map::new();
        for argument in self.arguments {
            match given.get(argument.name) {
                Some(value) if !value.is_null() => {
                    argument.check(value)?;
                    values.insert(argument.name.to_owned(), value.clone());
                }
                _ if argument.required => return Err(format!("{} is required", argument.name)),
                _ => {}
            }
        }
        values.extend(self.fixed.iter().map(|(name, value)| ((*name).to_owned(), json!(value))));
        if self.argument("limit").is_some() {
            values.entry("limit").or_insert_with(|| json!(ENTRIES.0));
        }
        let path = self.path_of(values.remove("id").as_ref().and_then(Json::as_str))?;
        let call = Call::new(self.method.clone(), path);
        if self.method == Method::GET {
            let text =
                |value: &Json| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            return Ok(values
                .iter()
                .fold(call, |call, (name, value)| call.query(name, text(value))));
        }
        let is_bare = values.is_empty() && !self.arguments.iter().any(|one| one.name != "id");
        Ok(if is_bare { call } else { call.body(Json::Object(values).to_string()) })
    }

    fn path_of(&self, id: Option<&str>) -> Result<String, String> {
        match id {
            Some(id) => Ok(self.path.replace("{id}", &segment(id)?)),
            None => Ok(self.path.to_owned()),
        }
    }

    fn argument(&self, name: &str) -> Option<&Argument> {
        self.arguments.iter().find(|one| one.name == name)
    }
}

/// An identifier as a part of a path. Those of events are chosen by the application.
fn segment(id: &str) -> Result<String, String> {
    super::super::escaped_segment(id).map_err(|failure| failure.to_string())
}

impl Argument {
    fn schema(&self) -> Json {
        let mut schema = match self.kind {
            Kind::Text => json!({ "type": "string" }),
            Kind::Time => json!({ "type": "string", "format": "date-time" }),
            Kind::Word(words) => json!({ "type": "string", "enum": words }),
            Kind::Number { max: u64::MAX } => json!({ "type": "integer", "minimum": 0 }),
            Kind::Number { max } => json!({ "type": "integer", "minimum": 0, "maximum": max }),
            Kind::Flag => json!({ "type": "boolean" }),
            Kind::Object => json!({ "type": "object" }),
        };
        schema["description"] = self.about.into();
        schema
    }

    fn check(&self, value: &Json) -> Result<(), String> {
        let name = self.name;
        match self.kind {
            Kind::Text | Kind::Time if value.is_string() => Ok(()),
            Kind::Text | Kind::Time => Err(format!("{name} must be a text")),
            Kind::Word(words) if value.as_str().is_some_and(|word| words.contains(&word)) => Ok(()),
            Kind::Word(words) => Err(format!("{name} must be one of {}", words.join(", "))),
            Kind::Number { max } if value.as_u64().is_some_and(|number| number <= max) => Ok(()),
            Kind::Number { max } => Err(format!("{name} must be a number from 0 to {max}")),
            Kind::Flag if value.is_boolean() => Ok(()),
            Kind::Flag => Err(format!("{name} must be true or false")),
            Kind::Object if value.is_object() => Ok(()),
            Kind::Object => Err(format!("{name} must be an object")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(name: &str) -> &'static Tool {
        TOOLS.iter().find(|tool| tool.name == name).unwrap()
    }

    #[test]
    fn arguments_of_the_wrong_kind_are_refused_with_what_would_be_right() {
        for (name, arguments, what) in [
            ("explain_delivery", json!({}), "id is required"),
            ("explain_delivery", json!({ "id": ".." }), "an identifier is not empty"),
            ("explain_delivery", json!({ "id": 1 }), "id must be a text"),
            ("ledger", json!({ "x": 1 }), "ledger has no argument \"x\""),
            ("ledger", json!([]), "the arguments must be an object"),
            ("list_deliveries", json!({ "state": "lost" }), "state must be one of queued"),
            ("list_deliveries", json!({ "limit": 1000 }), "limit must be a number from 0 to 100"),
            (
                "simulate",
                json!({ "deliveries": 1, "outage_seconds": 1, "policy": 1 }),
                "policy must be an object",
            ),
            ("replay_many", json!({}), "dry_run is required"),
        ] {
            let Err(found) = tool(name).request(&arguments) else { panic!("{name} {arguments}") };
            assert!(found.starts_with(what), "{name} {arguments}: {found}");
        }
        for tool in TOOLS {
            assert_eq!(tool.path.contains("{id}"), tool.argument("id").is_some(), "{}", tool.name);
        }
    }

    #[test]
    fn identifiers_of_events_reach_the_path_escaped() {
        let path = |name| tool(name).path_of(Some("order:17/b"));
        assert_eq!(path("get_event").unwrap(), "/v1/events/order%3A17%2Fb");
        assert_eq!(path("event_matches").unwrap(), "/v1/events/order%3A17%2Fb/matches");
        assert!(tool("get_event").request(&json!({ "id": "order:17/b" })).is_ok());
    }

    #[test]
    fn tools_that_only_read_send_no_changing_request() {
        for tool in TOOLS.iter().filter(|tool| !tool.writes) {
            assert!(tool.method == Method::GET || tool.path == "/v1/simulate", "{}", tool.name);
            assert_eq!(tool.described()["annotations"]["readOnlyHint"], true);
        }
        assert_eq!(TOOLS.iter().filter(|tool| tool.writes).count(), 4);
    }
}
