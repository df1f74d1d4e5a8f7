use proptest::{prelude::*, sample::select};

use super::*;

fn size(rows: u16, columns: u16) -> TerminalSize {
    TerminalSize { rows, columns }
}

fn screen(rows: u16, columns: u16, bytes: &[u8]) -> Screen {
    let mut screen = Screen::new(size(rows, columns)).unwrap();
    screen.feed(bytes);
    screen
}

fn lines(screen: &Screen) -> Vec<String> {
    let lines = screen.terminal.screen().visible_lines();
    lines.map(|line| line.text().trim_end().to_owned()).collect()
}

#[test]
fn what_a_program_draws_is_seen() {
    let rows: [(&[u8], [&str; 3]); 7] = [
        (b"one\r\ntwo\r\nthree\r\nfour", ["two", "three", "four"]),
        (b"a\x1b[2;3Hb\x1b[1Cc", ["a", "  b c", ""]),
        (b"\x1b(0lqk\x1b(B", ["\u{250c}\u{2500}\u{2510}", "", ""]),
        ("gr\u{fc}\u{df}e \u{6f22}".as_bytes(), ["gr\u{fc}\u{df}e \u{6f22}", "", ""]),
        (b"shell\x1b[?1049h\x1b[Hother", ["other", "", ""]),
        (b"shell\x1b[?1049h\x1b[Hother\x1b[?1049l", ["shell", "", ""]),
        (b"a\xff\xfeb\x1b[1;5Hend", ["a\u{fffd}\u{fffd}bend", "", ""]),
    ];
    for (bytes, expected) in rows {
        assert_eq!(lines(&screen(3, 10, bytes)), expected, "{:?}", String::from_utf8_lossy(bytes));
    }
}

#[test]
fn what_does_not_show_is_painted_too() {
    let paint = |bytes: &[u8]| screen(3, 10, bytes).paint();
    let modes = paint(b"\x1b[?2004h\x1b[?1000;1006h\x1b=\x1b[5 q\x1b[?1006l\x1b[?77h");
    assert!(modes.ends_with("\x1b[?1000h\x1b[?2004h\x1b=\x1b[5 q"), "{modes:?}");
    assert_eq!(paint(b"\x1b[?2004h\x1b=\x1bc"), paint(b""));
    // In the middle of a sequence the rest of it makes sense.
    let half = paint(b"text\x1b[3");
    assert!(half.ends_with("\x1b[3"), "{half:?}");
    let mut whole = Screen::painted(size(3, 10), &half).unwrap();
    whole.feed(b"D!");
    assert_eq!(lines(&whole)[0], "t!xt");
}

#[test]
fn half_a_character_is_not_shown_and_not_lost() {
    let mut screen = screen(3, 10, b"ab\xe6\xbc");
    assert_eq!((lines(&screen)[0].as_str(), screen.behind()), ("ab", 2));
    screen.feed(b"\xa2c");
    assert_eq!((lines(&screen)[0].as_str(), screen.behind()), ("ab\u{6f22}c", 0));
    screen.feed(b"\xe6");
    screen.feed(b"d");
    assert_eq!((lines(&screen)[0].as_str(), screen.behind()), ("ab\u{6f22}c\u{fffd}d", 0));
}

#[test]
fn what_never_ends_takes_no_more_than_its_bound() {
    for begun in ["\x1b]0;", "\x1bP", "\x1b[", "\x1b_"] {
        let mut screen = screen(2, 2, begun.as_bytes());
        screen.feed(&vec![b'1'; 1 << 20]);
        assert!(screen.paint().len() < 2 * MOST_UNFINISHED, "{begun:?}");
        screen.feed(b"\x18x");
        assert_eq!(lines(&screen)[0], "x", "{begun:?}");
    }
}

/// What programs write, and what nobody would.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let number = select(vec!["", "0", "1", "2", "4", "6", "7", "9", "25", "1049", "2004", "65535"]);
    let sequence = (select(vec!["", "?", "!", ">", " "]), number.clone(), number, 0x40..0x7f_u8);
    let piece = prop_oneof![
        4 => "[ -~]{0,12}".prop_map(String::into_bytes),
        1 => select(vec!["\u{e4}", "\u{3042}", "\u{1f642}", "\u{301}", "\u{2500}"])
            .prop_map(|text| text.as_bytes().to_vec()),
        4 => sequence.prop_map(|(mark, one, other, last)| {
            [b"\x1b[", mark.as_bytes(), one.as_bytes(), b";", other.as_bytes(), &[last]].concat()
        }),
        2 => select(vec!["\r\n", "\n", "\x08", "\t", "\x0e", "\x0f", "\x1b7", "\x1b8", "\x1bM", "\x1bc",
            "\x1b(0", "\x1b(B", "\x1b#8", "\x1b]0;title\x07", "\x1b]0;", "\x1bP", "\x1b=", "\x1bH"])
            .prop_map(|text| text.as_bytes().to_vec()),
        1 => any::<u8>().prop_map(|byte| vec![byte]),
    ];
    proptest::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

fn any_size() -> impl Strategy<Value = TerminalSize> {
    (1..12_u16, 1..24_u16).prop_map(|(rows, columns)| size(rows, columns))
}

proptest! {
    #[test]
    fn a_screen_that_was_painted_goes_on_like_the_one_that_it_was_painted_from(
        from in any_size(), to in any_size(), before in bytes(), between in bytes(), after in bytes(),
    ) {
        let mut screen = screen(from.rows, from.columns, &before);
        screen.resize(to);
        screen.feed(&between);
        let fed = between.len() - usize::try_from(screen.behind()).unwrap().min(between.len());
        let mut other = Screen::painted(to, &screen.paint()).unwrap();
        prop_assert_eq!(other.paint(), screen.paint());
        if screen.behind() <= u64::try_from(between.len()).unwrap() {
            other.feed(&between[fed..]);
            other.feed(&after);
            screen.feed(&after);
            prop_assert_eq!(other.paint(), screen.paint());
            screen.resize(from);
            other.resize(from);
            prop_assert_eq!(other.paint(), screen.paint());
        }
    }

    #[test]
    fn it_does_not_matter_how_output_is_cut(
        all in bytes(), lengths in proptest::collection::vec(1..9_usize, 1..9),
    ) {
        let whole = screen(5, 20, &all);
        let mut cut = Screen::new(size(5, 20)).unwrap();
        let (mut rest, mut lengths) = (all.as_slice(), lengths.iter().cycle());
        while !rest.is_empty() {
            let (next, others) = rest.split_at(rest.len().min(*lengths.next().unwrap()));
            cut.feed(next);
            rest = others;
        }
        prop_assert_eq!((cut.paint(), cut.behind()), (whole.paint(), whole.behind()));
    }
}

#[test]
fn a_screen_is_painted_in_sequences_that_every_terminal_understands() {
    let size = TerminalSize { rows: 5, columns: 40 };
    let mut screen = Screen::new(size).unwrap();
    let fed = "\x1b[38;5;123mcolour\x1b[0m \x1b[48;2;1;2;3mdepth\x1b[0m\r\n\
        \x1b[1;4:3;38:2::9:8:7mcurly\x1b[0m\r\n----------------------------------------\r\n\
        \x1b(0qqqqqqqqqqqq\x1b(B ハハハハハハ";
    screen.feed(fed.as_bytes());
    let painting = screen.paint();
    for sequence in painting.split("\x1b[").skip(1) {
        let end = sequence.find(|it: char| ('@'..='~').contains(&it)).unwrap();
        let (parameters, rest) = sequence.split_at(end);
        assert!(!parameters.contains(':') && !rest.starts_with('b'), "{sequence:?}");
    }
    assert!(painting.contains("38;5;123") && painting.contains("48;2;1;2;3"), "{painting:?}");
    assert!(painting.contains(&"-".repeat(40)), "{painting:?}");
    assert_eq!(Screen::painted(size, &painting).unwrap().paint(), painting);
}

#[test]
fn attributes_with_colons_are_written_without_them() {
    let rows = [
        ("0", "0"),
        ("1", "1"),
        ("4:3", "4"),
        ("38:5:7", "38;5;7"),
        ("38:2:1:2:3", "38;2;1;2;3"),
        ("48:2::1:2:3", "48;2;1;2;3"),
        ("", ""),
    ];
    for (attribute, expected) in rows {
        assert_eq!(plain_attribute(attribute), expected, "{attribute}");
    }
}
