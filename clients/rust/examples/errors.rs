//! Errors: a refusal is a problem document with a stable code.

#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "an example reads its environment and prints"
)]

use std::time::Duration;

use postrider_client::types::NewEvent;
use postrider_client::{Client, Error};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let client = Client::builder(std::env::var("POSTRIDER_SERVER")?)
        .key(std::env::var("POSTRIDER_KEY")?)
        .timeout(Duration::from_secs(10))
        .build()?;
    match client.events().send(&NewEvent::new("not a type", 1)).await {
        Ok(sent) => println!("accepted {}", sent.id),
        Err(Error::Problem(problem)) => {
            println!("{} {:?} {}", problem.code, problem.field, problem.detail);
        }
        Err(Error::Connection { cause, attempts, .. }) => {
            println!("no answer after {attempts} attempts: {cause}");
        }
        Err(error) => return Err(error.into()),
    }
    Ok(())
}
