//! Rows of the kernel's recording, test by test: which rows each test of `traces.rs` replays.
//!
//! A list is what a test must have replayed when it ends, and all lists together, with the rows
//! that are skipped or different for a reason, are the file: a row that no test replays, or that
//! two do, is found.

/// One write of each shape: of so many blocks of a full stripe each, and of a sector.
pub(crate) fn one_write() -> String {
    let raid5 = [3, 4, 5, 6, 7, 8].map(|members| (5, members, members - 1));
    let raid6 = [4, 5, 6, 7, 8, 9].map(|members| (6, members, members - 2));
    let mut names = Vec::new();
    for (level, members, data) in raid5.into_iter().chain([(4, 4, 3)]).chain(raid6) {
        let array = format!("raid{level}-{members}");
        names.extend((1..=data).map(|blocks| format!("{array}-{blocks}of{data}")));
        names.push(array + "-512");
    }
    names.join(" ")
}

/// Arrays with members missing.
pub(crate) fn degraded() -> String {
    let six = &["d0", "d1", "P", "Q", "d0+d1", "d1+d2", "d0+P", "d0+Q", "d1+P", "P+Q"][..];
    let requests = &["-4k", "-512", "-row", "-r4k", "-r4k-again", "-r4k-d1", "-r512"][..];
    let arrays = [("raid4-4", &["d0", "P"][..]), ("raid5-4", &["d0", "d1", "P"]), ("raid6-6", six)];
    let names =
        arrays.map(|(array, missing)| product(&[&[array], &["-without-"], missing, requests]));
    names.concat().join(" ")
}

/// With members missing, beyond the resync point and below it.
pub(crate) fn unsynced_degraded() -> String {
    let one = &["d0", "d1", "P"][..];
    let two = &["d0", "d1", "P", "Q", "d0+d1", "d1+d2", "d0+P", "d0+Q", "d1+P", "d1+Q", "P+Q"][..];
    let sizes = &["-4096", "-4096-d1", "-512", "-512-d1", "-row"][..];
    // Of members with sectors of 4096 bytes.
    let large = &["-4096", "-4096-d1", "-row"][..];
    let arrays = [
        ("raid5-4-unsynced", one, sizes),
        ("raid5-5-unsynced", one, sizes),
        ("raid6-6-unsynced", two, sizes),
        ("raid5-5-unsynced-sector4096", &["d1"], large),
        ("raid6-6-unsynced-sector4096", &["d1"], large),
    ];
    let sides = &["-beyond", "-below"][..];
    let names = arrays
        .map(|(array, missing, sizes)| product(&[&[array], &["-without-"], missing, sides, sizes]));
    names.concat().join(" ")
}

/// Each of the first parts of a name with each of the second ones, and so on.
fn product(parts: &[&[&str]]) -> Vec<String> {
    parts.iter().fold(vec![String::new()], |names, part| {
        let longer = |name: &String| part.iter().map(|end| name.clone() + end).collect::<Vec<_>>();
        names.iter().flat_map(longer).collect()
    })
}

/// Chunks, rows, the warm cache, rmw_level, reads.
pub(crate) const CHUNKS: &str = "\
    raid5-4-c64-1of3 raid5-4-c64-2of3 raid5-4-c64-3of3 raid5-5-c64-1of4 raid5-5-c64-2of4 \
    raid5-5-c64-3of4 raid5-5-c64-4of4 raid6-6-c64-1of4 raid6-6-c64-2of4 raid6-6-c64-3of4 \
    raid6-6-c64-4of4 raid5-4-row1-4k raid5-4-row2-4k raid5-4-row3-4k raid5-4-warm-1 \
    raid5-4-warm-2 raid5-4-warm-3 raid5-4-warm-4 raid5-4-8k-at-60k raid5-4-8k-at-188k \
    raid5-4-6k-at-1k raid5-4-384k raid5-4-c64-1m-1 raid5-4-c64-1m-2 raid5-4-c64-1m-3 \
    raid5-4-c512-1m-1 raid5-4-c512-1m-2 raid5-4-c512-1m-3 raid5-4-rmwlevel2-4096 \
    raid5-4-rmwlevel2-512 raid5-4-rmwlevel0-4096 raid5-4-rmwlevel0-512 raid5-5-rmwlevel0-4096 \
    raid5-5-rmwlevel0-512 raid5-5-rmwlevel2-4096 raid5-5-rmwlevel2-512 raid6-6-rmwlevel2-4096 \
    raid6-6-rmwlevel2-512 raid6-7-rmwlevel0-4096 raid6-7-rmwlevel0-512 raid5-4-r512 raid5-4-r1m \
    raid5-4-r8k-at-60k";

/// skip_copy.
pub(crate) const SKIP_COPY: &str = "\
    raid5-4-skipcopy-1 raid5-4-skipcopy-2";

/// Random writes.
pub(crate) const RANDOM: &str = "\
    raid5-4-lcg-768 raid5-4-lcg-2048 raid5-4-lcg-6144 raid5-5-lcg-6144 raid6-6-lcg-768 \
    raid6-6-lcg-6144";

/// Writes that nobody waits for.
pub(crate) const NOSYNC: &str = "\
    raid5-4-nosync-4k raid5-4-nosync-1k raid5-4-nosync-10 raid5-4-nosync-192k \
    raid5-4-nosync-3m-threshold0 raid5-4-nosync-2m-threshold0 raid5-4-nosync-3m-threshold1 \
    raid5-4-nosync-2m-threshold1 raid5-4-nosync-3m-threshold8 raid5-4-nosync-2m-threshold8";

/// Flushes and FUA.
pub(crate) const DURABLE: &str = "\
    raid5-4-flush raid5-4-fua raid5-4-fua-row raid5-4-flush-in-write raid5-4-without-d2-flush";

/// Superblocks.
pub(crate) const SUPERBLOCKS: &str = "\
    raid5-4-safemode";

/// Read errors.
pub(crate) const READ_ERRORS: &str = "\
    raid5-4-read-error raid6-6-read-error";

/// Check, repair and rebuild.
pub(crate) const SYNCS: &str = "\
    raid5-4-check raid5-4-check-again raid5-4-check-bad raid5-4-repair-bad \
    raid5-4-check-repaired raid5-4-repair-P raid6-5-check raid6-5-check-again raid6-5-check-bad \
    raid6-5-repair-bad raid6-5-check-repaired raid6-5-repair-P raid6-5-repair-Q raid6-6-check \
    raid6-6-check-again raid6-6-check-bad raid6-6-repair-bad raid6-6-check-repaired \
    raid6-6-repair-P raid6-6-repair-Q raid5-4-rebuild-1 raid5-4-rebuild-3 raid6-6-rebuild-1 \
    raid6-6-rebuild-5 raid6-6-rebuild-1+2 raid6-6-rebuild-1+5";

/// Beyond the resync point.
pub(crate) const UNSYNCED: &str = "\
    raid5-5-unsynced-4096 raid5-5-unsynced-512 raid5-7-unsynced-4096 raid5-7-unsynced-512";

/// All of them.
pub(crate) fn all() -> Vec<String> {
    let spelled_out =
        [CHUNKS, SKIP_COPY, RANDOM, NOSYNC, DURABLE, SUPERBLOCKS, READ_ERRORS, SYNCS, UNSYNCED];
    let generated = [one_write(), degraded(), unsynced_degraded()];
    generated.into_iter().chain(spelled_out.map(str::to_owned)).collect()
}
