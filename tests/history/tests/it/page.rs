//! The page about the checker.

use history::rule::Rule;

#[test]
fn every_rule_stands_on_the_page_with_its_invariants() {
    let page = include_str!("../../README.md");
    for rule in Rule::ALL {
        let row = format!("| `{}` | {} | {} |", rule.name(), rule.invariants(), rule.promise());
        assert!(page.contains(&row), "README.md has no row\n{row}");
    }
}
