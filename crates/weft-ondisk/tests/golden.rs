//! Do we read and write what mdadm and the kernel do? Compared with superblocks they wrote.

#[allow(dead_code, reason = "each test uses its part")]
mod fixture;

use fixture::Fixture;
use std::collections::BTreeMap;
use weft_ondisk::{Features, Level, Minor, NewArray, NewMember, ResyncOffset, Super1, layout_id};
use weft_units::Sectors;

#[test]
fn every_superblock_is_written_back_as_it_was() {
    let fixtures = fixture::all();
    assert_eq!(fixtures.len(), 169);
    for fixture in fixtures {
        let parsed = fixture.parse();
        let mut block = fixture.block;
        let len = parsed.encoded_len(512);
        assert_eq!(len, 512, "{}", fixture.array);
        block[..len].fill(0x5a);
        parsed.encode_into(&mut block);
        assert_eq!(block, fixture.block, "{}/{}", fixture.array, fixture.file);
    }
}

#[test]
fn the_superblock_is_found_among_all_places() {
    for fixture in fixture::all() {
        let nothing = [0; 4096];
        let blocks = Minor::ALL.map(|minor| {
            let block: &[u8] = if minor == fixture.minor { &fixture.block } else { &nothing };
            (minor, block)
        });
        assert_eq!(Super1::find(&blocks, fixture.member_size), Ok(fixture.parse()));
    }
}

/// The kernel's own number, which mdadm rounds differently.
fn corrected(array: &str, line: &str) -> String {
    match (array, line) {
        // 26 chunks of 64 KiB: with three copies on five members the last copies do not fit.
        // mdadm 4.2 divides sectors instead of chunks; /proc/mdstat says 1664 blocks.
        ("raid10-5-n3", "Array Size : 1706 KiB") => "Array Size : 1664 KiB".to_owned(),
        _ => line.to_owned(),
    }
}

/// The lines of `mdadm --examine` for each member. Only what it says of the superblock: mdadm goes
/// on to show the first sector as a partition table.
fn examined(text: &str) -> BTreeMap<String, Vec<String>> {
    let mut members = BTreeMap::new();
    let mut lines: Option<&mut Vec<String>> = None;
    for line in text.lines() {
        let line = line.trim();
        if line.starts_with('/') && line.ends_with(".img:") {
            let file = line.trim_end_matches(".img:").rsplit('/').next().unwrap();
            lines = Some(members.entry(format!("{file}.super.bin")).or_default());
        } else if line.starts_with("Filename : ") {
            lines = None;
        } else if let Some(lines) = &mut lines
            && !line.is_empty()
        {
            lines.push(line.to_owned());
        }
    }
    members
}

#[test]
fn every_line_of_mdadm_examine_is_the_same() {
    let mut compared = 0;
    for fixture in fixture::all() {
        let expected: Vec<String> = examined(&fixture.text("examine.txt"))[&fixture.file]
            .iter()
            .map(|line| corrected(&fixture.array, line))
            .collect();
        let described: Vec<String> = fixture
            .parse()
            .describe(fixture.member_size)
            .into_iter()
            .map(|(name, value)| format!("{name} : {value}"))
            .collect();
        assert_eq!(described, expected, "{}/{}", fixture.array, fixture.file);
        compared += expected.len();
    }
    assert_eq!(compared, 3880);
}

/// The array that the command in `create.txt` asks for; `None` when it asks for what
/// [`NewArray`] does not do.
fn commanded(command: &str, members: &[Fixture]) -> Option<NewArray> {
    let words: Vec<&str> = command.split_whitespace().collect();
    let value =
        |flag: &str| words.iter().position(|word| *word == flag).map(|index| words[index + 1]);
    if words.iter().any(|word| matches!(*word, "-b" | "--write-journal"))
        || command.contains("--consistency-policy")
    {
        return None;
    }
    let level: Level = value("-l").unwrap().parse().unwrap();
    let listed: Vec<NewMember> = members
        .iter()
        .map(|fixture| NewMember {
            size: fixture.member_size,
            device_uuid: fixture.parse().device_uuid,
        })
        .collect();
    let slots: usize = value("-n").unwrap().parse().unwrap();
    let spares: usize = value("-x").map_or(0, |count| count.parse().unwrap());
    let first = members[0].parse();
    let mut array = NewArray::new(level, listed[..slots].to_vec());
    array.spares = listed[slots..slots + spares].to_vec();
    array.minor = Minor::ALL.into_iter().find(|m| m.to_string() == value("-e").unwrap()).unwrap();
    array.chunk = value("-c").map(|kib| Sectors(kib.parse::<u64>().unwrap() * 2));
    array.layout = value("-p").map(|name| layout_id::parse(level, name).unwrap());
    array.name = format!("lab:{}", members[0].array);
    array.assume_clean = words.contains(&"--assume-clean");
    array.force = words.contains(&"--force");
    array.set_uuid = first.set_uuid;
    array.ctime = first.ctime;
    Some(array)
}

#[test]
fn new_arrays_are_as_mdadm_creates_them() {
    let mut arrays: BTreeMap<String, Vec<Fixture>> = BTreeMap::new();
    for fixture in fixture::all() {
        arrays.entry(fixture.array.clone()).or_default().push(fixture);
    }
    let mut compared = 0;
    for (name, members) in arrays {
        let Some(array) = commanded(&members[0].text("create.txt"), &members) else { continue };
        let planned = array.plan().unwrap_or_else(|error| panic!("{name}: {error}"));
        for (fixture, mut planned) in members.iter().zip(planned) {
            assert_eq!(planned.events, 0);
            assert_eq!(planned.utime, planned.ctime);
            // What the kernel changes by running the array.
            let kernel = fixture.parse();
            planned.events = kernel.events;
            planned.utime = kernel.utime;
            if !array.assume_clean && array.level != Level::Raid0 {
                assert_eq!(planned.resync_offset, ResyncOffset::At(Sectors(0)), "{name}");
            }
            planned.resync_offset = kernel.resync_offset;
            if kernel.events > 2 {
                // Members failed or were added, too.
                planned.roles = kernel.roles.clone();
                let runtime = Features::BADBLOCKS;
                planned.feature_map.insert(Features(kernel.feature_map.0 & runtime.0));
            }
            assert!(planned == kernel, "{name}/{}: {planned:?}\n{kernel:?}", fixture.file);
            compared += 1;
        }
    }
    assert_eq!(compared, 148);
}
