//! The terminal while the screen is shown: raw mode and the alternate screen, given back in every case.
//!
//! **The terminal is restored when the demonstration ends, fails or panics.**

use std::io;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use crossterm::event::{Event, EventStream, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use futures_util::StreamExt as _;
use ratatui::DefaultTerminal;

use super::scene::Scene;
use super::screen::{self, Look};

/// Something has panicked: the terminal was given back, and the demonstration ends.
static HAS_PANICKED: AtomicBool = AtomicBool::new(false);

/// What a person wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wish {
    Quit,
    Up,
    Down,
    /// The row with this number, from 0.
    Select(usize),
    BreakOrRepair,
    Explain,
    Help,
    Close,
    /// The window changed its size.
    Redraw,
}

/// The terminal, restored on drop.
pub(super) struct Screen {
    terminal: DefaultTerminal,
    events: EventStream,
    look: Look,
}

impl Screen {
    pub(super) fn open(look: Look) -> io::Result<Screen> {
        restore_on_panic();
        let terminal = ratatui::try_init()?;
        Ok(Screen { terminal, events: EventStream::new(), look })
    }

    pub(super) fn draw(&mut self, scene: &Scene) -> io::Result<()> {
        if HAS_PANICKED.load(Ordering::Relaxed) {
            return Err(io::Error::other("a task of the demonstration panicked"));
        }
        self.terminal.draw(|frame| screen::draw(frame, scene, &self.look)).map(drop)
    }

    /// The next wish; quits when the terminal is closed.
    pub(super) async fn wish(&mut self) -> Wish {
        loop {
            match self.events.next().await {
                Some(Ok(event)) => {
                    if let Some(wish) = wish_of(&event) {
                        return wish;
                    }
                }
                Some(Err(_)) | None => return Wish::Quit,
            }
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// Gives the terminal back before a panic is reported, so that the report can be read.
fn restore_on_panic() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let report = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            HAS_PANICKED.store(true, Ordering::Relaxed);
            ratatui::restore();
            report(info);
        }));
    });
}

fn wish_of(event: &Event) -> Option<Wish> {
    match event {
        Event::Key(key) if key.kind == KeyEventKind::Press => wish_of_key(key),
        Event::Resize(_, _) => Some(Wish::Redraw),
        Event::Key(_)
        | Event::Mouse(_)
        | Event::Paste(_)
        | Event::FocusGained
        | Event::FocusLost => None,
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "most keys of a keyboard mean nothing here")]
fn wish_of_key(key: &KeyEvent) -> Option<Wish> {
    let has_control = key.modifiers.contains(KeyModifiers::CONTROL);
    match key.code {
        KeyCode::Char('c' | 'd') if has_control => Some(Wish::Quit),
        KeyCode::Char('q') => Some(Wish::Quit),
        KeyCode::Up | KeyCode::Char('k') => Some(Wish::Up),
        KeyCode::Down | KeyCode::Char('j') => Some(Wish::Down),
        KeyCode::Char(digit @ '1'..='9') => {
            let place = usize::try_from(digit.to_digit(10)?).ok()?;
            Some(Wish::Select(place - 1))
        }
        KeyCode::Char('b') | KeyCode::Enter => Some(Wish::BreakOrRepair),
        KeyCode::Char('x' | 'e') => Some(Wish::Explain),
        KeyCode::Char('?' | 'h') => Some(Wish::Help),
        KeyCode::Esc => Some(Wish::Close),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_mean_what_the_last_line_says() {
        let press = |code: KeyCode| wish_of(&Event::Key(KeyEvent::new(code, KeyModifiers::NONE)));
        for (code, wish) in [
            (KeyCode::Char('q'), Some(Wish::Quit)),
            (KeyCode::Char('b'), Some(Wish::BreakOrRepair)),
            (KeyCode::Char('x'), Some(Wish::Explain)),
            (KeyCode::Char('7'), Some(Wish::Select(6))),
            (KeyCode::Up, Some(Wish::Up)),
            (KeyCode::Esc, Some(Wish::Close)),
            (KeyCode::Char('?'), Some(Wish::Help)),
            (KeyCode::Char('z'), None),
            (KeyCode::Char('c'), None),
        ] {
            assert_eq!(press(code), wish, "{code:?}");
        }
        let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(wish_of(&Event::Key(control_c)), Some(Wish::Quit));
    }
}
