//! `postrider demo`: a server, receivers that misbehave on purpose, and traffic, on a live screen.
//!
//! Everything is on loopback, on free ports, in a temporary directory that is removed at the end.
//! The server is a real one and is used only through its API; its policy runs on a faster clock, so
//! that days pass in minutes. **It reads no configuration of this machine.**

mod door;
mod plain;
mod receivers;
mod scene;
mod screen;
mod script;
mod terminal;
mod traffic;
mod watch;
mod words;

use std::io::{self, IsTerminal as _};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use hyper::Method;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch as latest};

use self::plain::Lines;
use self::receivers::{CAST, Mood, Receivers};
use self::scene::{Kind, Panel, Scene, Seen, State};
use self::screen::Look;
use self::terminal::{Screen, Wish};
use self::watch::Watcher;
use crate::cli::ServerArgs;
use crate::client::Client;
use crate::commands::load;
use crate::config::{Environment, Loaded, parse_duration};
use crate::exit::Failure;
use crate::output::{Colour, Output};
use crate::serve::{ListenerOptions, Server, listen_http};
use crate::telemetry;

/// How often the screen is drawn and the script may take its next step.
const DRAW_EVERY: Duration = Duration::from_millis(100);
/// The most observations that wait to be shown.
const SEEN_MAX: usize = 4_096;
/// Retries of a delivery here, instead of eleven: so that one dies while somebody is looking.
const RETRIES: u32 = 6;
/// The unit of the retry schedule.
const RETRY_UNIT: Duration = Duration::from_millis(84_800);

/// When the last retry is due, in time of the policy.
fn retries_last() -> Duration {
    RETRY_UNIT * ((1 << RETRIES) - 1)
}

#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// End by itself after this time, such as 90s; otherwise at q or Ctrl-C.
    #[arg(long = "for", value_name = "DURATION", value_parser = duration)]
    time: Option<Duration>,
    /// Print lines instead of the live screen, as without a terminal.
    #[arg(long)]
    plain: bool,
    /// The address of the API and the dashboard; a free port by default.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    listen: String,
    /// The factor by which the policy's clock is faster: at 200, ten minutes take three seconds.
    #[arg(long, value_name = "N", default_value = "200", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    time_scale: u32,
}

fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text).ok_or_else(|| "a duration such as 10s or 2m".to_owned())
}

/// A temporary directory, removed on drop.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        // If it cannot be removed, it stays in the system's temporary directory.
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// Runs a demonstration to its end.
pub(crate) fn run(demo: &Demo, output: Output) -> Result<(), Failure> {
    let random = postrider_entropy::system_bytes::<16>().map_err(anyhow::Error::from)?;
    let name = postrider_domain::hex::encode(&random);
    let scratch = Scratch(std::env::temp_dir().join(format!("postrider-demo-{name}")));
    let has_terminal = io::stdout().is_terminal() && io::stdin().is_terminal();
    let is_live = has_terminal && !output.is_dumb() && !demo.plain && !output.json;
    let arguments = ServerArgs {
        listen: Some(demo.listen.clone()),
        data_dir: Some(scratch.0.display().to_string()),
        dev: true,
        time_scale: Some(demo.time_scale.to_string()),
        set: vec![
            format!("admin_key=demo_{name}"),
            // A line of the log would tear the screen.
            format!("telemetry.log={}", if is_live { "off" } else { "error" }),
            "shutdown.deadline=1s".to_owned(),
            format!("retry.max={RETRIES}"),
            "recovery.mode=drain".to_owned(),
            "recovery.dead=replay".to_owned(),
        ],
        ..ServerArgs::default()
    };
    let loaded = load(&arguments, &Environment::default())?;
    let log = telemetry::start(&loaded.config.telemetry, output)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let show = async {
        let word = postrider_domain::hex::encode(
            &postrider_entropy::system_bytes::<5>().map_err(anyhow::Error::from)?,
        );
        let stage = Stage::open(demo, loaded, &log, format!("demo_{name}"), &word).await?;
        stage.play(demo, is_live, output).await
    };
    let ended = runtime.block_on(Box::pin(show));
    runtime.shutdown_background();
    log.flush();
    drop(scratch);
    ended
}

/// The running demonstration: server, receivers, and everything that was seen.
struct Stage {
    server: Server,
    client: Client,
    key: String,
    receivers: Receivers,
    watcher: Watcher,
    seen: mpsc::Receiver<Seen>,
    scene: Scene,
    stop_receivers: latest::Sender<bool>,
}

impl Stage {
    async fn open(
        demo: &Demo,
        loaded: Loaded,
        log: &telemetry::LogHandle,
        key: String,
        word: &str,
    ) -> Result<Stage, Failure> {
        let options = ListenerOptions::of(&loaded.config);
        let server = Server::start_quietly(loaded, log).await?;
        let client = Client::new(&format!("http://{}", server.address()), Some(key.clone()), None)?;
        let listener =
            TcpListener::bind("127.0.0.1:0").await.context("no port for the receivers")?;
        let address = listener.local_addr()?;
        let (stop_receivers, stopped) = latest::channel(false);
        let receivers = Receivers::new();
        let router = receivers.router().merge(door::router(word, server.sign_in()));
        drop(tokio::spawn(listen_http(listener, router, options, stopped)));
        for role in CAST {
            let url = format!("http://{address}/{}", role.name);
            let wish = json!({"url": url, "types": [role.diet.event_type()]}).to_string();
            client.ask(Method::POST, "/v1/subscriptions", &[], Some(wish.into())).await?;
        }
        let (sender, seen) = mpsc::channel(SEEN_MAX);
        let watcher = Watcher::new(client.clone(), server.clock(), sender).await?;
        let scene = Scene::new(demo.time_scale, format!("http://{address}/go/{word}"));
        Ok(Stage { server, client, key, receivers, watcher, seen, scene, stop_receivers })
    }

    /// Plays until it is over, and cleans up.
    async fn play(mut self, demo: &Demo, is_live: bool, output: Output) -> Result<(), Failure> {
        let server = format!("http://{}", self.server.address());
        let lines = Lines::new(output);
        let mut shown = Ok(());
        let mut face = if is_live {
            let connection = format!("--server {server} --key {}", self.key);
            // An empty text is painted only where colours are used.
            let is_coloured = !output.paint(Colour::Bold, "").is_empty();
            Face::Screen(Box::new(Screen::open(Look { is_coloured, connection })?))
        } else {
            shown = lines.introduce(&self.scene, &server, &self.key);
            Face::Lines(Lines::new(output))
        };
        let tasks = [
            tokio::spawn(self.watcher.clone().follow()),
            tokio::spawn(self.watcher.clone().survey()),
            tokio::spawn(traffic::send(self.client.clone(), self.watcher.reports())),
        ];
        let over = async {
            if shown.is_err() {
                return;
            }
            shown = perform(
                &mut face,
                &mut self.scene,
                &mut self.seen,
                &self.receivers,
                &self.watcher,
                demo.time,
            )
            .await;
        };
        let over = self.server.until(over).await;
        // The terminal is given back before anything else can take time or fail.
        drop(face);
        tasks.iter().for_each(tokio::task::JoinHandle::abort);
        let summary = if over.is_ok() { self.watcher.summary().await.ok() } else { None };
        self.stop_receivers.send_replace(true);
        self.server.stop().await?;
        over?;
        let told = shown.and_then(|()| match summary {
            Some(summary) => lines.conclude(&self.scene, &summary),
            None => Ok(()),
        });
        match told {
            // Whoever read the lines has stopped reading.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            told => Ok(told?),
        }
    }
}

/// Where the demonstration is shown.
enum Face {
    Lines(Lines),
    Screen(Box<Screen>),
}

impl Face {
    fn show(&mut self, scene: &Scene) -> io::Result<()> {
        match self {
            Face::Lines(lines) => lines.show(scene),
            Face::Screen(screen) => screen.draw(scene),
        }
    }

    async fn wish(&mut self) -> Wish {
        match self {
            Face::Lines(_) => std::future::pending().await,
            Face::Screen(screen) => screen.wish().await,
        }
    }
}

/// Shows what happens, follows the plot and does what keys say, until somebody quits or the time is over.
async fn perform(
    face: &mut Face,
    scene: &mut Scene,
    seen: &mut mpsc::Receiver<Seen>,
    receivers: &Receivers,
    watcher: &Watcher,
    time: Option<Duration>,
) -> io::Result<()> {
    let mut hang_up = signal(SignalKind::hangup())?;
    let mut ticks = tokio::time::interval(DRAW_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let begin = ticks.tick().await;
    scene.tell(
        Kind::Note,
        None,
        format!(
            "{} orders a second go to five receivers, a few invoices to two",
            traffic::ORDERS_PER_SECOND
        ),
    );
    loop {
        tokio::select! {
            Some(seen) = seen.recv() => {
                scene.see(seen);
                continue;
            }
            now = ticks.tick() => {
                scene.advance(now.duration_since(begin), receivers.open());
                for cue in script::cues(scene) {
                    set_mood(scene, receivers, watcher, cue.row, cue.mood, false);
                }
            }
            wish = face.wish() => {
                if wish == Wish::Quit {
                    return Ok(());
                }
                grant(wish, scene, receivers, watcher);
            }
            // The terminal was closed.
            _ = hang_up.recv() => return Ok(()),
        }
        face.show(scene)?;
        if time.is_some_and(|time| scene.elapsed() >= time) {
            return Ok(());
        }
    }
}

/// Does what somebody wishes.
fn grant(wish: Wish, scene: &mut Scene, receivers: &Receivers, watcher: &Watcher) {
    let last = CAST.len() - 1;
    let selected = scene.selected;
    match wish {
        Wish::Up => scene.selected = selected.checked_sub(1).unwrap_or(last),
        Wish::Down => scene.selected = if selected >= last { 0 } else { selected + 1 },
        Wish::Select(row) => scene.selected = row.min(last),
        Wish::BreakOrRepair => {
            let is_down = scene.rows().get(selected).is_some_and(|row| row.mood.is_down());
            let mood = if is_down { Mood::Prompt } else { Mood::Failing };
            set_mood(scene, receivers, watcher, selected, mood, true);
        }
        Wish::Explain => drop(tokio::spawn(watcher.clone().explain(selected))),
        Wish::Help => {
            let is_open = scene.panel == Some(Panel::Help);
            scene.panel = (!is_open).then_some(Panel::Help);
        }
        Wish::Close => scene.panel = None,
        Wish::Quit | Wish::Redraw => {}
    }
}

/// Changes how a receiver answers. A frozen destination is enabled too, because nothing else ends that.
fn set_mood(
    scene: &mut Scene,
    receivers: &Receivers,
    watcher: &Watcher,
    row: usize,
    mood: Mood,
    by_person: bool,
) {
    receivers.set_mood(row, mood);
    scene.set_mood(row, mood, by_person);
    let is_frozen = scene.rows().get(row).is_some_and(|row| row.state == State::Frozen);
    if is_frozen && !mood.is_down() {
        drop(tokio::spawn(watcher.clone().enable(row)));
    }
}
