//! Do the checkers see? Each planted bug is found by a checker, which is named; the same seeds without
//! the bug are clean.

use std::panic;

use weft_engine::mutant::Mutant;
use weft_sim::World;
use weft_sim::bugs::{hunt, script};

const SCRIPTS: u64 = 2000;

fn plant(mutant: Mutant) -> impl Fn(&mut World) {
    move |world: &mut World| {
        if let Some(engine) = world.engine_mut() {
            engine.plant(mutant);
        }
    }
}

/// Panics of planted bugs are expected and say nothing new.
fn quietly<T>(act: impl FnOnce() -> T) -> T {
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|_| ()));
    let value = act();
    panic::set_hook(hook);
    value
}

#[test]
fn every_planted_bug_is_found_by_a_checker() {
    let found: Vec<_> = quietly(|| {
        let hunt = |mutant| (mutant, hunt(mutant, None, SCRIPTS, &plant(mutant)));
        Mutant::ALL.into_iter().map(hunt).collect()
    });
    let mut missed = Vec::new();
    for (mutant, number) in found {
        let Some(number) = number else {
            missed.push(mutant);
            continue;
        };
        let failure = script(mutant, number).run_with(&plant(mutant)).expect_err("it was found");
        println!("{mutant:?}: script {number}, seen by {}", failure.violation.checker);
        if let Err(twin) = script(mutant, number).run() {
            panic!("{mutant:?}: script {number} fails without the bug too: {twin}");
        }
    }
    for mutant in Mutant::MISSED {
        println!("{mutant:?}: missed, and known to be");
    }
    assert!(missed.is_empty(), "not found within {SCRIPTS} scripts: {missed:?}");
}
