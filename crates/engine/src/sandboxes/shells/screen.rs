//! What the terminal of a shell shows, and all else that its next bytes depend on.
//!
//! The bytes come from whatever runs in a sandbox: nothing that they say takes more than a bound of
//! memory, nor more time than so much for each byte and character of the screen.

use std::fmt::Write as _;

use avt::{
    Terminal,
    parser::{Function, Parser, State},
};
use model::spec::TerminalSize;

/// What is remembered of a control sequence that has not come to its end. Longer ones are titles and
/// pictures, of which nothing is shown.
const MOST_UNFINISHED: usize = 4096;

/// A terminal that shows what it was fed.
pub(super) struct Screen {
    parser: Parser,
    terminal: Terminal,
    /// The control sequence that has not come to its end.
    unfinished: String,
    modes: Modes,
    /// The start of a character whose end has not come: at most three bytes.
    tail: Vec<u8>,
}

impl std::fmt::Debug for Screen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Screen").field("size", &self.terminal.size()).finish_non_exhaustive()
    }
}

impl Screen {
    /// Makes an empty one. Nothing of a size that none has.
    pub(super) fn new(size: TerminalSize) -> Option<Self> {
        Some(Self {
            parser: Parser::new(),
            terminal: Terminal::new(size.columns.into(), size.rows.into()).ok()?,
            unfinished: String::new(),
            modes: Modes::default(),
            tail: Vec::new(),
        })
    }

    /// Makes one that shows what another did.
    pub(super) fn painted(size: TerminalSize, painting: &str) -> Option<Self> {
        let mut screen = Self::new(size)?;
        painting.chars().for_each(|character| screen.take(character));
        Some(screen)
    }

    /// Shows the next bytes.
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        let mut joined = std::mem::take(&mut self.tail);
        joined.extend_from_slice(bytes);
        let mut chunks = joined.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            chunk.valid().chars().for_each(|character| self.take(character));
            if chunks.peek().is_none() && is_start(chunk.invalid()) {
                self.tail = chunk.invalid().to_vec();
            } else if !chunk.invalid().is_empty() {
                self.take(char::REPLACEMENT_CHARACTER);
            }
        }
    }

    /// Returns how many of the bytes that it was fed do not show yet: they are the start of a
    /// character.
    pub(super) fn behind(&self) -> u64 {
        u64::try_from(self.tail.len()).unwrap_or_default()
    }

    pub(super) fn resize(&mut self, size: TerminalSize) {
        self.terminal.resize(size.columns.into(), size.rows.into());
    }

    /// Returns what makes any terminal of this size show the same, and take the next bytes the same
    /// way: a reset, both screens, modes, and the control sequence that has not come to its end.
    pub(super) fn paint(&self) -> String {
        let mut text = "\x1bc".to_owned();
        push_plain(&mut text, &self.terminal.dump());
        self.modes.write(&mut text);
        text.push_str(&self.unfinished);
        text
    }

    fn take(&mut self, character: char) {
        let before = self.parser.state;
        let function = self.parser.feed(character);
        if self.parser.state != State::Ground {
            if character == '\x1b' {
                self.unfinished.clear();
            }
            // What is done at once, in the middle of a sequence, is no part of it.
            if function.is_none() && self.unfinished.len() < MOST_UNFINISHED {
                self.unfinished.push(character);
            }
        } else if before != State::Ground {
            self.modes.note(&self.unfinished, character);
            self.unfinished.clear();
        }
        match function {
            // More often than there is room for it makes no difference but in time.
            Some(Function::Rep(times)) => {
                let (columns, rows) = self.terminal.size();
                let room = u16::try_from(columns.saturating_mul(rows)).unwrap_or(u16::MAX);
                self.terminal.execute(Function::Rep(times.min(room)));
            }
            Some(function) => self.terminal.execute(function),
            None => {}
        }
    }
}

/// Adds a text in control sequences that every terminal understands: a character that is to be repeated is
/// written as often, and the parts of a colour are separated by semicolons.
fn push_plain(text: &mut String, dump: &str) {
    let mut rest = dump;
    let mut last = None;
    while let Some(at) = rest.find("\x1b[") {
        let (before, sequence) = rest.split_at(at);
        text.push_str(before);
        last = before.chars().next_back().filter(|it| !it.is_control()).or(last);
        let body = sequence.strip_prefix("\x1b[").unwrap_or_default();
        let end = body.find(|it: char| ('@'..='~').contains(&it)).unwrap_or(body.len());
        let (parameters, after) = body.split_at(end);
        let Some(kind) = after.chars().next() else { return text.push_str(sequence) };
        rest = after.strip_prefix(kind).unwrap_or_default();
        match (kind, parameters.parse::<usize>(), last) {
            ('b', Ok(times), Some(last)) => text.extend(std::iter::repeat_n(last, times)),
            ('m', _, _) => push_attributes(text, parameters),
            _ => text.extend(["\x1b[", parameters, kind.encode_utf8(&mut [0; 4])]),
        }
    }
    text.push_str(rest);
}

/// Adds a control sequence that sets colours and other looks.
fn push_attributes(text: &mut String, parameters: &str) {
    let plain: Vec<String> = parameters.split(';').map(plain_attribute).collect();
    text.extend(["\x1b[", &plain.join(";"), "m"]);
}

/// Writes an attribute without colons. Of one that only says more of another, such as the kind of a line below
/// the text, the other is left.
fn plain_attribute(attribute: &str) -> String {
    let parts: Vec<&str> = attribute.split(':').collect();
    match parts.as_slice() {
        // The third part, if there are six, names a space of colours.
        [kind @ ("38" | "48"), "2", _, red, green, blue, ..]
        | [kind @ ("38" | "48"), "2", red, green, blue] => {
            format!("{kind};2;{red};{green};{blue}")
        }
        [kind @ ("38" | "48"), "5", number] => format!("{kind};5;{number}"),
        [first, ..] => (*first).to_owned(),
        [] => String::new(),
    }
}

/// Whether bytes that are no character may become one.
fn is_start(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

/// What a program asks of the terminal that does not show: how keys and the mouse are to be told to
/// it, and what the cursor looks like.
#[derive(Debug, Default, PartialEq, Eq)]
struct Modes {
    /// One bit for each of [`TRACKED`].
    set: u16,
    keypad: Keypad,
    cursor: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Keypad {
    #[default]
    Numbers,
    Application,
}

/// Mouse, focus and pasting.
const TRACKED: [u16; 10] = [9, 1000, 1002, 1003, 1004, 1005, 1006, 1015, 1016, 2004];

/// The looks of a cursor are 0 to 6.
const LAST_CURSOR: u8 = 6;

impl Modes {
    /// Notes what a control sequence says that ends with this character.
    fn note(&mut self, sequence: &str, last: char) {
        let body = sequence.strip_prefix("\x1b[").or_else(|| sequence.strip_prefix('\u{9b}'));
        match (sequence, body, last) {
            ("\x1b", _, 'c') => *self = Self::default(),
            ("\x1b", _, '=') => self.keypad = Keypad::Application,
            ("\x1b", _, '>') => self.keypad = Keypad::Numbers,
            (_, Some("!"), 'p') => self.keypad = Keypad::Numbers,
            (_, Some(body), 'q') => {
                let style = body.strip_suffix(' ').map(|style| style.parse().unwrap_or(0));
                self.cursor = style.filter(|style| *style <= LAST_CURSOR).unwrap_or(self.cursor);
            }
            (_, Some(body), 'h' | 'l') => {
                let numbers = body.strip_prefix('?').unwrap_or_default().split(';');
                for number in numbers.filter_map(|number| number.parse::<u16>().ok()) {
                    self.switch(number, last == 'h');
                }
            }
            _ => {}
        }
    }

    fn switch(&mut self, mode: u16, is_on: bool) {
        if let Some(place) = TRACKED.iter().position(|tracked| *tracked == mode) {
            let bit = 1 << place;
            self.set = if is_on { self.set | bit } else { self.set & !bit };
        }
    }

    fn write(&self, text: &mut String) {
        for (place, mode) in TRACKED.iter().enumerate() {
            if self.set & (1 << place) != 0 {
                // A text takes whatever is written to it.
                let _ = write!(text, "\x1b[?{mode}h");
            }
        }
        if self.keypad == Keypad::Application {
            text.push_str("\x1b=");
        }
        if self.cursor != 0 {
            let _ = write!(text, "\x1b[{} q", self.cursor);
        }
    }
}

/// Shows any bytes, for fuzzing: how they are cut makes no difference, and a screen that was painted is like the one
/// that it was painted from. The first byte says how they are cut.
pub fn fuzz_one(bytes: &[u8]) {
    const SIZE: TerminalSize = TerminalSize { rows: 5, columns: 20 };
    let Some((cut, bytes)) = bytes.split_first() else { return };
    let (Some(mut whole), Some(mut pieces)) = (Screen::new(SIZE), Screen::new(SIZE)) else {
        return;
    };
    whole.feed(bytes);
    for piece in bytes.chunks(usize::from(*cut) + 1) {
        pieces.feed(piece);
    }
    let painting = whole.paint();
    assert_eq!(pieces.paint(), painting, "it depends on how the bytes are cut");
    let painted = Screen::painted(SIZE, &painting).map(|screen| screen.paint());
    assert_eq!(painted, Some(painting), "what was painted is another");
}

#[cfg(test)]
mod tests;
