//! Lists of the knobs that scripts draw, with their values from the engine's knob table.
//!
//! The order of a list determines the draws of a seed. Each list therefore has its knobs in the
//! order in which they were added to it. A new knob of the table comes last in the lists for which
//! its entry has values, without a change here.

use std::sync::LazyLock;

use weft_engine::knobs::{Draws, KnobRow, TABLE};

/// Name of a knob, and the values that are drawn for it.
pub(super) type Drawn = (&'static str, &'static [&'static str]);

/// Knobs that are drawn for an array before the first step of a script, with their values.
pub(super) static START: LazyLock<Vec<Drawn>> = LazyLock::new(|| list(&START_ORDER, |it| it.start));

/// Knobs that any profile may set at run time, as pairs of a name and one value.
pub(super) static STEPS: LazyLock<Vec<(&str, &str)>> = LazyLock::new(|| {
    let list = list(&STEPS_ORDER, |draws| draws.steps);
    let pairs =
        list.into_iter().flat_map(|(name, values)| values.iter().map(move |it| (name, *it)));
    let mut pairs: Vec<_> = pairs.collect();
    // `plan_rule=least` was added after `activation`.
    let of_plan = pairs.iter().position(|pair| *pair == ("plan_rule", "least"));
    let least = of_plan.expect("plan_rule is drawn");
    pairs[least..least + 3].rotate_left(1);
    pairs
});

/// Knobs of member queues, with values that make requests wait and get sorted.
pub(super) static QUEUES: LazyLock<Vec<Drawn>> =
    LazyLock::new(|| list(&QUEUES_ORDER, |draws| draws.queues));

/// Knobs that only the profiles [`Profile::MIXED`](super::Profile::MIXED) set at run time.
pub(super) static MIXED: LazyLock<Vec<Drawn>> =
    LazyLock::new(|| list(&MIXED_ORDER, |draws| draws.mixed));

/// Knobs that may be set for the queue of a single member. The largest request size is not among
/// them, because I12 has one limit for all members.
pub(super) static ONE_QUEUE: LazyLock<Vec<Drawn>> =
    LazyLock::new(|| list(&ONE_QUEUE_ORDER, |draws| draws.one_queue));

/// The knobs in `order`, then all other knobs of the table that have values in this list.
fn list(order: &[&str], values: fn(&Draws) -> &'static [&'static str]) -> Vec<Drawn> {
    let drawn = |row: &KnobRow| (row.name, values(&row.draws));
    let named = order.iter().map(|name| {
        let row = TABLE.iter().find(|row| row.name == *name);
        drawn(row.expect("an order has names of the table alone"))
    });
    let rest = TABLE.iter().filter(|row| !order.contains(&row.name)).map(drawn);
    named.chain(rest.filter(|(_, values)| !values.is_empty())).collect()
}

/// Knobs of [`START`], in the order in which they were added. The values of `priority` and
/// `stripe_size` are in `draw.rs`: `preread_wait_max` is drawn together with `priority`, and
/// `stripe_size` depends on the chunk.
const START_ORDER: [&str; 9] = [
    "writes",
    "rmw_level",
    "priority",
    "preread_bypass_threshold",
    "max_sectors_kb",
    "stripe_size",
    "skip_copy",
    "plan_rule",
    "activation",
];

const STEPS_ORDER: [&str; 12] = [
    "stripe_cache_size",
    "rmw_level",
    "writes",
    "priority",
    "preread_wait_max",
    "preread_bypass_threshold",
    "max_sectors_kb",
    "stripe_size",
    "skip_copy",
    "plan_rule",
    "activation",
    "safe_mode_delay",
];

const QUEUES_ORDER: [&str; 15] = [
    "flush_batch",
    "scheduler",
    "queue_depth",
    "fifo_batch",
    "front_merges",
    "read_expire",
    "writes_starved",
    "slice_idle",
    "strict_guarantees",
    "timeout_sync",
    "low_latency",
    "merge_position",
    "merge_queues",
    "merge_weight",
    "stable_merge",
];

const MIXED_ORDER: [&str; 24] = [
    "dirty_bytes",
    "dirty_ratio",
    "dirty_background_bytes",
    "dirty_background_ratio",
    "dirty_expire_centisecs",
    "dirty_writeback_centisecs",
    "dirty_throttle",
    "max_ratio",
    "strictlimit",
    "sync_pace",
    "sync_speed_min",
    "sync_speed_max",
    "read_around",
    "flush_batch",
    "scheduler",
    "nr_requests",
    "nomerges",
    "async_depth",
    "fairness",
    "group_weights",
    "idle_lowest",
    "waker",
    "check_reads",
    "safe_mode_delay",
];

const ONE_QUEUE_ORDER: [&str; 6] =
    ["scheduler", "queue_depth", "nr_requests", "slice_idle", "nomerges", "rotational"];

#[cfg(test)]
mod tests {
    use weft_engine::knobs::{Knobs, SchedulerKind};

    use super::*;

    /// Whether a knob has either values to draw or a reason why it has none.
    fn is_settled(draws: &Draws) -> bool {
        let values = Draws { unlisted: "", ..*draws };
        (values == Draws::NONE) != draws.unlisted.is_empty()
    }

    #[test]
    fn every_knob_is_drawn_or_has_a_reason_why_not() {
        for row in TABLE {
            assert!(is_settled(&row.draws), "{}: give it values to draw, or a reason", row.name);
        }
        let (mixed, unlisted): (&[&str], _) = (&["0"], "slice_idle is drawn");
        assert!(!is_settled(&Draws::NONE), "neither");
        assert!(!is_settled(&Draws { mixed, unlisted, ..Draws::NONE }), "both");
    }

    /// Words in the range of a drawn knob that no list contains. Words that select policies of
    /// former kernels are left out of `range` and count as drawn.
    fn words_not_drawn(name: &str, range: &str, draws: &Draws) -> Vec<String> {
        let lists = [draws.start, draws.steps, draws.queues, draws.mixed, draws.one_queue];
        let drawn = lists.concat();
        let is_word = |text: &&str| !text.contains("..") && !text.contains(' ');
        let words = range.split(" | ").filter(is_word).filter(|word| !drawn.contains(word));
        words.map(|word| format!("{name}={word}")).collect()
    }

    #[test]
    fn words_that_scripts_do_not_draw_are_found() {
        let mut found = Vec::new();
        for row in TABLE.iter().filter(|row| row.unit == "word" && row.draws.unlisted.is_empty()) {
            found.extend(words_not_drawn(row.name, &row.range_live(), &row.draws));
        }
        assert_eq!(found, Vec::<String>::new());
        let (queues, range): (&[&str], _) = (&["none", "bfq"], "none | cfq | bfq");
        let planted = words_not_drawn("scheduler", range, &Draws { queues, ..Draws::NONE });
        assert_eq!(planted, ["scheduler=cfq"]);
    }

    /// Every list has all schedulers, because each list combines them with other features. Other
    /// values need to be in only one list.
    #[test]
    fn each_list_of_schedulers_has_every_one() {
        let lacking = |list: &[&str]| {
            let names = SchedulerKind::ALL.map(SchedulerKind::name);
            names.into_iter().filter(|name| !list.contains(name)).collect::<Vec<_>>()
        };
        let draws = TABLE.iter().find(|row| row.name == "scheduler").unwrap().draws;
        for list in [draws.queues, draws.mixed, draws.one_queue] {
            assert_eq!(lacking(list), [""; 0]);
        }
        assert_eq!(lacking(&["none", "mq-deadline", "bfq"]), ["kyber"]);
    }

    #[test]
    fn a_knob_with_values_is_in_the_lists_even_if_no_order_has_it() {
        let by_order = list(&MIXED_ORDER, |draws| draws.mixed);
        let without = list(&MIXED_ORDER[1..], |draws| draws.mixed);
        assert_eq!(without[..23], by_order[1..]);
        assert_eq!(without[23..], by_order[..1]);
    }

    #[test]
    fn every_value_that_is_drawn_is_valid() {
        let knobs = Knobs { stripe_cache_size: 17, ..Knobs::md() };
        for (name, values) in [&*START, &*QUEUES, &*MIXED, &*ONE_QUEUE].into_iter().flatten() {
            for value in *values {
                assert!(knobs.parse(name, value).is_ok(), "{name}={value}");
            }
        }
        for (name, value) in &*STEPS {
            assert!(knobs.parse(name, value).is_ok(), "{name}={value}");
        }
        for (name, value) in ONE_QUEUE.iter().map(|(name, values)| (name, values[0])) {
            assert!(knobs.parse(name, value).is_ok_and(|knob| knob.is_of_queues()), "{name}");
        }
    }
}
