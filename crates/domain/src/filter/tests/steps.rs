//! The cost of filters in steps.

use serde_json::{Value, json};

use super::super::{Budget, EventView, Filter, OverBudget};
use super::event;

/// The steps that a filter takes on an event.
fn steps(filter: &Value, event_json: &str) -> (bool, u64) {
    let filter = Filter::compile(filter).unwrap();
    let event = event(event_json);
    let mut budget = Budget::unlimited();
    let verdict = filter.evaluate(&EventView::new(&event), &mut budget).unwrap();
    (verdict, Budget::unlimited().left() - budget.left())
}

#[test]
fn cost_of_contains_only_is_the_sum_of_both_sizes_and_not_their_product() {
    let set: Vec<u32> = (0..100).collect();
    let condition = json!({"field": "data.x", "op": "contains_only", "value": set});
    let event = |elements: usize| {
        let x: Vec<usize> = (0..elements).map(|n| n % 100).collect();
        json!({"data": {"x": x}}).to_string()
    };
    let (verdict, of_10_000) = steps(&condition, &event(10_000));
    assert!(verdict);
    let (_, of_20_000) = steps(&condition, &event(20_000));
    assert!(of_10_000 <= 10_000 * 3, "{of_10_000}");
    assert!(of_20_000 <= of_10_000 * 2 + 10, "{of_20_000}");
}

#[test]
fn every_operator_pays_for_what_it_reads() {
    let text = "y".repeat(1_000_000);
    let event = json!({"data": {"x": text, "o": {"k": text}}, "old": {"o": {"k": text}}});
    let event = event.to_string();
    let time = "2026-01-01T00:00:00Z";
    for condition in [
        json!({"field": "data.x", "op": "contains", "value": "z"}),
        json!({"field": "data.x", "op": "not_contains", "value": "z"}),
        json!({"field": "data.x", "op": "contains_only", "value": ["z"]}),
        json!({"field": "data.x", "op": "eq", "value": time}),
        json!({"field": "data.x", "op": "lt", "value": time}),
        json!({"field": "data.o", "op": "changed"}),
    ] {
        let (_, taken) = steps(&condition, &event);
        assert!(taken > 10_000, "{condition}: {taken}");
    }
    let (_, taken) = steps(&json!({"field": "data.x", "op": "eq", "value": "z"}), &event);
    assert!(taken < 10, "a short text is not compared with all of a long one: {taken}");
}

#[test]
fn filter_that_runs_out_of_steps_says_so_and_takes_no_more() {
    let condition = json!({"field": "data.x", "op": "contains_only", "value": [1]});
    let source = json!({"all": vec![condition; 20]});
    let filter = Filter::compile(&source).unwrap();
    let ones = vec!["1"; 500_000].join(",");
    let event = event(&format!(r#"{{"data": {{"x": [{ones}]}}}}"#));
    let mut budget = Budget::new(crate::limits::FILTER_STEPS_MAX);
    let verdict = filter.evaluate(&EventView::new(&event), &mut budget);
    assert_eq!((verdict, budget.left()), (Err(OverBudget), 0));
}
