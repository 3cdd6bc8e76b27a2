//! Golden tests of superblocks written by mdadm and the kernel: weft reads them and writes them
//! again.

#[allow(dead_code, reason = "each test uses its part")]
mod fixture;

use fixture::Fixture;
use std::collections::BTreeMap;
use weft_ondisk::{
    Features, Minor, NewArray, NewMember, ResyncOffset, Role, Super1, Superblock, Version,
};
use weft_units::{Sectors, Slot};

#[test]
fn every_superblock_is_written_back_as_it_was() {
    let fixtures = fixture::all();
    assert_eq!(fixtures.len(), 169 + 80);
    for fixture in fixtures {
        let parsed = fixture.parse();
        let mut block = fixture.block;
        let len = parsed.encoded_len(512);
        assert_eq!(len, if fixture.array == "raid6-130" { 1024 } else { 512 });
        block[..len].fill(0x5a);
        parsed.encode_into(&mut block);
        assert_eq!(block, fixture.block, "{}/{}", fixture.array, fixture.file);
    }
}

#[test]
fn changes_are_read_back() {
    let fixture = fixture::member("raid5-4x64k-ls", 0);
    let mut changed = fixture.parse();
    changed.events += 1;
    changed.resync_offset = ResyncOffset::At(Sectors(0));
    changed.set_recovery_offset(Some(Sectors(512)));
    changed.set_role(2, Role::Faulty);
    changed.set_role(130, Role::Active(Slot(2)));
    assert_eq!(changed.roles.len(), 131);
    assert_eq!(changed.encoded_len(512), 1024);
    let mut block = fixture.block;
    changed.encode_into(&mut block);
    let read = Super1::parse(&block, fixture.minor, fixture.member_size).unwrap();
    assert_eq!(read, changed);
    assert_eq!(read.recovery_offset(), Some(Sectors(512)));
    assert_eq!(read.role(129).unwrap(), Role::Spare);
    assert_eq!(block[520..], fixture.block[520..]);
    changed.set_recovery_offset(None);
    assert_eq!(changed.feature_map, Features(0));
}

#[test]
fn the_superblock_is_found_among_all_places() {
    for fixture in fixture::all() {
        let nothing = [0; 4096];
        let blocks = Minor::ALL.map(|minor| {
            let block: &[u8] = if minor == fixture.minor { &fixture.block } else { &nothing };
            (Version::from(minor), block)
        });
        let found = Superblock::find(&blocks, fixture.member_size);
        assert_eq!(found, Ok(fixture.parse().into()));
    }
}

/// A line with the number that the kernel uses, which mdadm rounds differently.
fn corrected(array: &str, line: &str) -> String {
    match (array, line) {
        // 26 chunks of 64 KiB: with three copies on five members the last copies do not fit. mdadm
        // 4.2 divides sectors instead of chunks; /proc/mdstat reports 1664 blocks.
        ("raid10-5-n3", "Array Size : 1706 KiB") => "Array Size : 1664 KiB".to_owned(),
        _ => line.to_owned(),
    }
}

/// The lines of `mdadm --examine` for each member. Only lines about the superblock are taken: mdadm
/// goes on to print the first sector as a partition table.
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
    assert_eq!(compared, 5700);
}

/// The array that the command in `create.txt` creates; `None` when the command uses an option that
/// [`NewArray`] does not support.
fn commanded(command: &str, members: &[Fixture]) -> Option<NewArray> {
    if ["-b ", "--write-journal", "--consistency-policy"].iter().any(|with| command.contains(with))
    {
        return None;
    }
    let words: Vec<&str> = command.split_whitespace().collect();
    let value =
        |flag: &str| words.iter().position(|word| *word == flag).map(|index| words[index + 1]);
    let long = |flag: &str| words.iter().find_map(|word| word.strip_prefix(flag));
    let kib = |text: &str| Sectors(text.trim_end_matches('K').parse::<u64>().unwrap() * 2);

    let mut opened = 0;
    let listed: Vec<Option<NewMember>> = words
        .iter()
        .filter(|word| word.starts_with("/dev/loop") || **word == "missing")
        .map(|word| {
            if *word == "missing" {
                return None;
            }
            let kept =
                members.iter().find(|fixture| fixture.file == format!("m{opened}.super.bin"));
            opened += 1;
            let size = kept.unwrap_or(&members[0]).member_size;
            let device_uuid = kept.map(|fixture| fixture.parse().device_uuid).unwrap_or_default();
            Some(NewMember { size, device_uuid })
        })
        .collect();

    let first = members[0].parse();
    let mut array = NewArray::new(value("-l").unwrap().parse().unwrap(), Vec::new());
    array.slots = listed;
    array.spares = array
        .slots
        .split_off(value("-n").unwrap().parse().unwrap())
        .into_iter()
        .flatten()
        .collect();
    array.minor = Minor::ALL.into_iter().find(|m| m.to_string() == value("-e").unwrap()).unwrap();
    array.chunk = value("-c").map(kib);
    array.layout = value("-p").map(|name| array.level.row().layouts.parse(name).unwrap());
    array.name = format!("lab:{}", long("--name=").unwrap());
    array.size = long("--size=").map(kib);
    array.data_offset = long("--data-offset=").map(kib);
    array.assume_clean = words.contains(&"--assume-clean");
    array.force = words.contains(&"--force");
    array.set_uuid = first.set_uuid;
    array.ctime = first.ctime;
    Some(array)
}

/// Copies the fields that the kernel changed since the creation of the array, and checks that the
/// changes are possible.
fn age(planned: &mut Super1, kernel: &Super1, array: &NewArray) {
    assert_eq!(planned.events, 0);
    planned.events = kernel.events;
    assert_eq!(planned.utime, planned.ctime);
    planned.utime = kernel.utime;
    // A clean array is clean again once stopped; the images of the unclean array were taken before
    // it stopped.
    if planned.resync_offset.is_clean() && !array.name.ends_with("-unclean") {
        assert!(kernel.resync_offset.is_clean(), "{}", array.name);
    }
    planned.resync_offset = kernel.resync_offset;
    let story = array.name.rsplit('-').next().unwrap();
    if ["badblock", "failedmark", "rebuild", "stale", "stale2"].contains(&story) {
        // Members failed, were added or got bad blocks.
        planned.roles.clone_from(&kernel.roles);
        planned.feature_map.insert(Features(kernel.feature_map.0 & Features::BADBLOCKS.0));
    }
    // The member to rebuild gets a slot as soon as the array runs.
    let rebuilt = array.slots.len() + array.spares.len();
    if let (Some(role), Some(now)) = (planned.roles.get_mut(rebuilt), kernel.roles.get(rebuilt)) {
        *role = *now;
    }
    if planned.dev_number as usize == rebuilt {
        planned.feature_map.insert(Features(kernel.feature_map.0 & Features::RECOVERY.0));
        planned.recovery_offset_raw = kernel.recovery_offset_raw;
    }
}

#[test]
fn new_arrays_are_as_mdadm_creates_them() {
    let mut arrays: BTreeMap<String, Vec<Fixture>> = BTreeMap::new();
    for fixture in fixture::all() {
        arrays.entry(fixture.array.clone()).or_default().push(fixture);
    }
    let (mut compared, mut exact) = (0, 0);
    for (name, members) in arrays {
        let Some(array) = commanded(&members[0].text("create.txt"), &members) else { continue };
        let plan = array.plan().unwrap_or_else(|error| panic!("{name}: {error}"));
        for fixture in members {
            let kernel = fixture.parse();
            let planned = plan.iter().find(|planned| planned.device_uuid == kernel.device_uuid);
            // A member added later is not in the plan.
            let Some(mut planned) = planned.cloned() else { continue };
            if kernel.events == 0 {
                // The kernel has not written yet: the bytes are those of mdadm.
                let len = planned.encoded_len(512);
                assert!(planned.encode()[..len] == fixture.block[..len], "{name}");
                exact += 1;
            }
            age(&mut planned, &kernel, &array);
            assert!(planned == kernel, "{name}/{}:\n{planned:?}\n{kernel:?}", fixture.file);
            compared += 1;
        }
    }
    assert_eq!((compared, exact), (228, 66));
}
