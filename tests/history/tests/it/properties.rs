//! Histories of a server that keeps its promises pass; with one lie in them they do not.

use std::collections::BTreeMap;

use history::{check::check, report::Summary, rule::Rule};
use proptest::prelude::*;

use crate::{
    mutations,
    simulation::{self, Chance},
};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn what_clients_of_a_good_server_see_is_right(seed: u64, steps in 1_usize..800) {
        let report = check(&simulation::run(seed, steps));
        prop_assert!(report.is_clean(), "{:#?}", report.violations);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_lie_is_told_by_its_rule(seed: u64, steps in 100_usize..600) {
        let entries = simulation::run(seed, steps);
        for (name, lie) in mutations::ALL {
            let mut entries = entries.clone();
            let Some(rules) = lie(&mut entries, &mut Chance::new(seed)) else { continue };
            let report = check(&entries);
            let caught = rules.iter().any(|rule| report.broken.contains_key(rule));
            prop_assert!(caught, "{name}: not {rules:?} but {:#?}", report.violations);
        }
    }
}

#[test]
fn there_is_a_place_for_every_lie_and_a_lie_for_every_rule() {
    let mut told: BTreeMap<&str, u32> = BTreeMap::new();
    let mut broken: BTreeMap<Rule, u32> = BTreeMap::new();
    for seed in 0..40 {
        let entries = simulation::run(seed, 500);
        for (name, lie) in mutations::ALL {
            let mut entries = entries.clone();
            let found = lie(&mut entries, &mut Chance::new(seed)).is_some();
            *told.entry(name).or_default() += u32::from(found);
            for rule in check(&entries).rules() {
                *broken.entry(rule).or_default() += 1;
            }
        }
    }
    let rare: Vec<_> = told.iter().filter(|(_, times)| **times < 5).collect();
    assert!(rare.is_empty(), "hardly ever told: {rare:?}");
    // What a recorder does wrong is no lie of the server.
    let mut unbroken = Rule::ALL.to_vec();
    unbroken.retain(|rule| !broken.contains_key(rule) && *rule != Rule::RecordingIsWhole);
    assert!(unbroken.is_empty(), "no lie breaks {unbroken:?}");
}

#[test]
fn the_simulation_does_everything() {
    let mut all = Summary::default();
    for seed in 0..50 {
        let Summary { acknowledged, refused, unknown, unknown_that_happened, kills, execs, .. } =
            check(&simulation::run(seed, 500)).summary;
        all.acknowledged += acknowledged;
        all.refused += refused;
        all.unknown += unknown;
        all.unknown_that_happened += unknown_that_happened;
        all.kills += kills;
        all.execs += execs;
    }
    assert!(all.acknowledged > 1000 && all.refused > 500 && all.unknown > 200, "{all:?}");
    assert!(all.unknown_that_happened > 20 && all.kills > 200 && all.execs > 200, "{all:?}");
}
