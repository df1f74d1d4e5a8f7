//! Licence expressions as packages write them: `MIT OR Apache-2.0`, `(MIT OR X) AND Y`, `MIT/X`.

use std::{iter::Peekable, str::SplitWhitespace};

type Words<'text> = Peekable<SplitWhitespace<'text>>;

/// Tells whether the expression can be met with the allowed licences alone.
pub(crate) fn is_met(expression: &str, allowed: &[String]) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let mut words = spaced.split_whitespace().peekable();
    let met = any(&mut words, allowed);
    met && words.next().is_none()
}

fn any(words: &mut Words<'_>, allowed: &[String]) -> bool {
    let mut met = all(words, allowed);
    while words.next_if_eq(&"OR").is_some() {
        met |= all(words, allowed);
    }
    met
}

fn all(words: &mut Words<'_>, allowed: &[String]) -> bool {
    let mut met = one(words, allowed);
    while words.next_if_eq(&"AND").is_some() {
        met &= one(words, allowed);
    }
    met
}

fn one(words: &mut Words<'_>, allowed: &[String]) -> bool {
    if words.next_if_eq(&"(").is_some() {
        let met = any(words, allowed);
        return words.next_if_eq(&")").is_some() && met;
    }
    let Some(name) = words.next() else { return false };
    let mut licence = name.to_owned();
    if words.next_if_eq(&"WITH").is_some() {
        licence = format!("{licence} WITH {}", words.next().unwrap_or_default());
    }
    allowed.contains(&licence)
}

#[test]
fn an_expression_is_met_by_one_side_of_or_and_both_sides_of_and() {
    let allowed = ["MIT", "Zlib"].map(str::to_owned);
    let rows = [
        ("MIT", true),
        ("GPL-3.0", false),
        ("GPL-3.0 OR MIT", true),
        ("GPL-3.0/MIT", true),
        ("MIT AND Zlib", true),
        ("MIT AND GPL-3.0", false),
        ("(GPL-3.0 OR MIT) AND Zlib", true),
        ("(GPL-3.0 OR MIT) AND BSD-2-Clause", false),
        ("MIT WITH some-exception", false),
        ("MIT WITH some-exception OR Zlib", true),
        ("(MIT", false),
        ("MIT MIT", false),
        ("", false),
    ];
    for (expression, expected) in rows {
        assert_eq!(is_met(expression, &allowed), expected, "{expression}");
    }
}
