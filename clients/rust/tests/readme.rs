//! The README shows the examples as they are.

#[test]
fn every_block_of_the_readme_is_an_example_and_every_example_is_there() {
    let readme = include_str!("../README.md");
    let examples = [
        include_str!("../examples/first_webhook.rs"),
        include_str!("../examples/axum_receiver.rs"),
        include_str!("../examples/many_events.rs"),
        include_str!("../examples/policies.rs"),
        include_str!("../examples/errors.rs"),
        include_str!("../examples/follow.rs"),
    ];
    let blocks: Vec<_> = readme
        .split("```rust\n")
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap_or_default())
        .collect();
    assert_eq!(blocks.len(), examples.len());
    for (block, example) in blocks.iter().zip(examples) {
        let begin = example.find("\nuse ").unwrap() + 1;
        assert_eq!(*block, &example[begin..]);
    }
}
