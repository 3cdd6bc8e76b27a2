//! Block queue attributes of Linux that are not knobs of weft, with the reason for each.
//!
//! An administrator who sets such an attribute out of habit gets the reason for its absence, and
//! the alternative.
//!
//! Source   io-schedulers.md §7; Documentation/ABI/stable/sysfs-block

/// Reason for which weft has no knob like the Linux attribute `name`; `None` if there is no such
/// attribute.
pub(super) fn reason(name: &str) -> Option<&'static str> {
    ABSENT.iter().find(|(names, _)| names.contains(&name)).map(|(_, reason)| *reason)
}

const ABSENT: &[(&[&str], &str)] = &[
    (&["add_random"], "a volume is no source of randomness"),
    (
        &[
            "chunk_sectors",
            "discard_granularity",
            "logical_block_size",
            "max_hw_sectors_kb",
            "max_segment_size",
            "max_segments",
            "minimum_io_size",
            "optimal_io_size",
            "physical_block_size",
        ],
        "a fact of the device, to which requests are fitted; max_sectors_kb bounds those that merging makes",
    ),
    (&["discard_max_bytes"], "a member that can discard is given whole ranges"),
    (
        &["fua", "write_cache"],
        "members are flushed, and written with FUA, as if each had a cache that may be lost",
    ),
    (&["io_poll", "io_poll_delay"], "members are not polled"),
    (
        &["io_timeout"],
        "a request that does not end is not taken back; member_timeout fails its member",
    ),
    (&["iostats"], "members are always counted; weft status shows it"),
    (
        &["read_ahead_kb"],
        "a volume reads what it is asked for; clients read ahead, as the kernel does above its NBD device",
    ),
    (&["rq_affinity"], "requests end on the thread of their volume"),
    (
        &["wbt_lat_usec"],
        "writes are held back by latency with scheduler=kyber (write_lat_nsec); async_depth (mq-deadline) bounds them, \
         and weights (bfq) share",
    ),
    (
        &["bfq.weight", "io.bfq.weight", "weight"],
        "a weight is a client's, given by weft serve --weight and --client",
    ),
];

#[cfg(test)]
mod tests {
    use super::super::{KnobError, Knobs, TABLE};
    use super::*;

    const INT_MAX: i128 = i32::MAX as i128;

    /// Values that Linux accepts for an attribute, or the fact that weft does not have it.
    enum Kernel {
        /// Whole numbers from the first to the second number, and further values that only weft
        /// accepts.
        Range(i128, i128, &'static [i128]),
        /// The attribute accepts these words.
        Words(&'static [&'static str]),
        /// weft does not have the attribute, and refuses it by name.
        Absent,
    }

    use Kernel::{Absent, Range, Words};

    /// All attributes of io-schedulers.md §7, in its order. weft's values differ in two: it refuses
    /// negative values of `writes_starved`, which make no sense, and accepts zero for
    /// `async_depth`, which means no limit.
    const LINUX: &[(&str, Kernel)] = &[
        ("read_expire", Range(0, INT_MAX, &[])),
        ("write_expire", Range(0, INT_MAX, &[])),
        ("writes_starved", Range(0, INT_MAX, &[])),
        ("fifo_batch", Range(0, INT_MAX, &[])),
        ("front_merges", Range(0, 1, &[])),
        ("async_depth", Range(1, INT_MAX, &[0])),
        ("prio_aging_expire", Range(0, INT_MAX, &[])),
        ("slice_idle", Range(0, INT_MAX, &[])),
        ("slice_idle_us", Range(0, u32::MAX as i128, &[])),
        ("strict_guarantees", Range(0, 1, &[])),
        ("low_latency", Range(0, 1, &[])),
        ("timeout_sync", Range(1, INT_MAX, &[])),
        ("max_budget", Range(0, INT_MAX, &[])),
        ("fifo_expire_sync", Range(1, INT_MAX, &[])),
        ("fifo_expire_async", Range(1, INT_MAX, &[])),
        ("back_seek_max", Range(0, INT_MAX, &[])),
        ("back_seek_penalty", Range(1, INT_MAX, &[])),
        ("io.bfq.weight", Absent),
        ("read_lat_nsec", Range(0, u64::MAX as i128, &[])),
        ("write_lat_nsec", Range(0, u64::MAX as i128, &[])),
        ("scheduler", Words(&["none", "mq-deadline", "kyber", "bfq"])),
        ("nr_requests", Range(4, 2048, &[0])),
        ("rotational", Range(0, 1, &[])),
        ("read_ahead_kb", Absent),
        ("max_sectors_kb", Range(0, 32_768, &[])),
        ("max_hw_sectors_kb", Absent),
        ("max_segments", Absent),
        ("max_segment_size", Absent),
        ("nomerges", Range(0, 2, &[])),
        ("rq_affinity", Absent),
        ("add_random", Absent),
        ("iostats", Absent),
        ("io_poll", Absent),
        ("io_poll_delay", Absent),
        ("io_timeout", Absent),
        ("wbt_lat_usec", Absent),
        ("write_cache", Absent),
        ("fua", Absent),
        ("logical_block_size", Absent),
        ("physical_block_size", Absent),
        ("minimum_io_size", Absent),
        ("optimal_io_size", Absent),
        ("chunk_sectors", Absent),
        ("discard_granularity", Absent),
        ("discard_max_bytes", Absent),
    ];

    #[test]
    fn every_knob_of_the_block_layer_has_its_range_or_a_reason_why_it_is_absent() {
        let knobs = Knobs::default();
        let (mut here, mut absent) = (0, 0);
        for (name, kernel) in LINUX {
            let takes = |value: i128| knobs.parse(name, &value.to_string()).is_ok();
            match kernel {
                Range(first, last, others) => {
                    assert!(takes(*first) && takes(*last), "{name}: {first} to {last}");
                    for beyond in [first - 1, last + 1, -1] {
                        assert_eq!(takes(beyond), others.contains(&beyond), "{name}={beyond}");
                    }
                    here += 1;
                }
                Words(words) => {
                    assert!(words.iter().all(|word| knobs.parse(name, word).is_ok()), "{name}");
                    here += 1;
                }
                Absent => {
                    let error = knobs.parse(name, "1").unwrap_err();
                    let reason = reason(name).unwrap();
                    assert_eq!(error, KnobError::Absent { name: (*name).to_owned(), reason });
                    assert!(error.to_string().starts_with(&format!("{name}: ")), "{error}");
                    absent += 1;
                }
            }
            for text in ["", "x", "1.5", "99999999999999999999"] {
                assert!(knobs.parse(name, text).is_err(), "{name}={text:?}");
            }
        }
        assert_eq!((here, absent), (24, 21));
        // No name is in both tables, and the list has all rows that originate in the block layer.
        for row in TABLE {
            assert_eq!(reason(row.name), None, "{}", row.name);
            let of_linux = row.origin.starts_with("block queue");
            assert_eq!(LINUX.iter().any(|known| known.0 == row.name), of_linux, "{}", row.name);
        }
    }
}
