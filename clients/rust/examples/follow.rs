//! Following what happens, live.

#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "an example reads its environment and prints"
)]

use std::time::Duration;

use postrider_client::{Client, Happening};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let client = Client::new(std::env::var("POSTRIDER_SERVER")?, std::env::var("POSTRIDER_KEY")?)?;
    let mut stream = client.stream().await?;
    let follow = async {
        while let Some(happened) = stream.next().await {
            if let Happening::Attempt { delivery, attempt } = happened? {
                println!("{} {:?}", delivery.id, attempt.outcome);
            }
        }
        anyhow::Ok(())
    };
    // Two seconds are enough for an example.
    let ended = tokio::time::timeout(Duration::from_secs(2), follow).await;
    println!("{}", if ended.is_ok() { "the server ended the stream" } else { "done" });
    Ok(())
}
