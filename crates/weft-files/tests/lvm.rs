//! LVM2: groups over several physical volumes, linear and striped volumes, and what is refused.

mod common;

use std::rc::Rc;

use common::volumes::{EXTENT, FIRST, group, physical, set_text, uuid, volume};
use weft_files::inside::{Inside, look};
use weft_files::lvm::{LvmError, PhysicalVolume, beginnings};
use weft_files::source::{Shared, read_vec};

const LINEAR: &str = "stripe_count = 1\nstripes = [\"pv0\", 2]";

fn inside(devices: &[(&str, &[u8])]) -> Inside {
    let sources = devices.iter().map(|(name, bytes)| {
        let source: Shared = Rc::new(bytes.to_vec());
        ((*name).to_owned(), source)
    });
    look(sources.collect())
}

/// Physical volume (by its letter), extent, and sector in the extent of a byte of a volume.
fn place(source: &Shared, byte: usize) -> (char, u32, u32) {
    let sector = read_vec(&**source, byte as u64, 512).unwrap();
    let number = |at: usize| u32::from_le_bytes(sector[at..at + 4].try_into().unwrap());
    (char::from(sector[0]), number(32), number(36))
}

fn of<'i>(inside: &'i Inside, name: &str) -> Result<&'i Shared, &'i String> {
    let found = inside.places.iter().find(|place| place.name == name);
    found.unwrap_or_else(|| panic!("no {name}")).content.as_ref().map(|(_, source)| source)
}

#[test]
fn linear_and_striped_volumes_over_two_arrays_read_as_lvm_maps_them() {
    let stripes = "stripe_count = 2\nstripe_size = 8\nstripes = [\"pv0\", 8, \"pv1\", 4]";
    let volumes = volume(
        "lv",
        &[
            (0, 3, "striped", LINEAR),
            (3, 1, "striped", "stripe_count = 1\nstripes = [\"pv1\", 15]"),
        ],
    ) + &volume("fast", &[(0, 4, "striped", stripes)]);
    let text = group(7, &volumes);
    let older = group(6, "");
    // The text of one begins near the end of its area and goes on at the start.
    let a = physical(&uuid('a'), text.as_bytes(), (1 << 20) - 4096 - 200, 16);
    let b = physical(&uuid('b'), older.as_bytes(), 512, 16);
    let found = inside(&[("data", &a), ("more", &b)]);
    assert_eq!(found.groups.len(), 1);
    assert_eq!(found.groups[0].on, ["data", "more"]);
    let lv = of(&found, "vg1000/lv").unwrap();
    assert_eq!(lv.size(), 4 * EXTENT as u64);
    assert_eq!(place(lv, 0), ('a', 2, 0));
    assert_eq!(place(lv, 2 * EXTENT + 1024), ('a', 4, 2));
    assert_eq!(place(lv, 3 * EXTENT + 512), ('b', 15, 1));
    assert!(read_vec(&**lv, 4 * EXTENT as u64 - 1, 2).is_err());
    let fast = of(&found, "vg1000/fast").unwrap();
    // Stripes of 8 sectors, in turn.
    for sector in 0..4 * EXTENT / 512 {
        let (stripe, within) = (sector / 8, sector % 8);
        let on_leg = stripe / 2 * 8 + within;
        let (letter, first) = if stripe % 2 == 0 { ('a', 8) } else { ('b', 4) };
        let (extent, within) = (on_leg * 512 / EXTENT, on_leg % (EXTENT / 512));
        let expected =
            (letter, first + u32::try_from(extent).unwrap(), u32::try_from(within).unwrap());
        assert_eq!(place(fast, sector * 512), expected, "{sector}");
    }
    let across = read_vec(&**lv, 3 * EXTENT as u64 - 512, 1024).unwrap();
    assert_eq!((across[0], across[512]), (b'a', b'b'));
}

#[test]
fn a_missing_physical_volume_costs_what_is_on_it() {
    let two = [
        (0, 1, "striped", "stripe_count = 1\nstripes = [\"pv0\", 0]"),
        (1, 1, "striped", "stripe_count = 1\nstripes = [\"pv1\", 0]"),
    ];
    let text = group(1, &volume("lv", &two));
    let a = physical(&uuid('a'), text.as_bytes(), 512, 16);
    let found = inside(&[("data", &a)]);
    assert_eq!(found.groups[0].missing, [uuid('b')]);
    let lv = of(&found, "vg1000/lv").unwrap();
    assert_eq!(place(lv, EXTENT - 512), ('a', 0, 127));
    let error = read_vec(&**lv, EXTENT as u64 - 512, 1024).unwrap_err();
    assert_eq!(error.range, EXTENT as u64..EXTENT as u64 + 512);
    assert!(error.why.contains(&uuid('b')), "{error}");
    let notes = &found.places.iter().find(|place| place.name == "vg1000/lv").unwrap().notes;
    assert!(notes[0].contains("was not found"), "{notes:?}");
}

#[test]
fn volumes_of_other_kinds_are_named_and_refused() {
    let mut volumes = String::new();
    for kind in ["thin", "thin-pool", "cache", "mirror", "raid1", "raid6_zr", "snapshot", "odd"] {
        volumes += &volume(&format!("v-{kind}"), &[(0, 1, kind, "")]);
    }
    volumes += &volume("origin", &[(0, 1, "striped", LINEAR)]);
    volumes += &volume("cow", &[(0, 1, "striped", LINEAR)]);
    let snapshot =
        volume("snapshot0", &[(0, 1, "snapshot", "origin = \"origin\"\ncow_store = \"cow\"")]);
    volumes += &snapshot.replace("\"VISIBLE\"", "\"READ\"");
    let a = physical(&uuid('a'), group(1, &volumes).as_bytes(), 512, 16);
    let b = physical(&uuid('b'), b"", 512, 16);
    let found = inside(&[("data", &a), ("more", &b)]);
    let says = |name: &str| of(&found, &format!("vg1000/{name}")).err().unwrap().clone();
    assert!(says("v-thin").contains("a thin volume (thin)"), "{}", says("v-thin"));
    assert!(says("v-raid6_zr").contains("a RAID of LVM (raid6_zr)"));
    assert!(says("v-odd").contains("not known"));
    assert!(says("cow").contains("a snapshot of origin"));
    assert!(of(&found, "vg1000/origin").is_ok());
    assert!(!found.places.iter().any(|place| place.name.contains("snapshot0")));
}

#[test]
fn faults_say_where_they_are() {
    let a = |text: &str| physical(&uuid('a'), text.as_bytes(), 512, 16);
    let says = |device: &[u8]| {
        let source: Shared = Rc::new(device.to_vec());
        match PhysicalVolume::read("data", &source) {
            Ok(volume) => volume.text.err().unwrap(),
            Err(error) => error,
        }
    };
    let whole = a(&group(1, ""));
    let mut label = whole.clone();
    label[600] ^= 1;
    assert!(matches!(says(&label), LvmError::Checksum { what: "label", at: 512, .. }));
    let mut header = whole.clone();
    header[4096 + 100] ^= 1;
    assert!(matches!(says(&header), LvmError::Checksum { what: "metadata area", at: 4096, .. }));
    let mut text = whole.clone();
    text[4096 + 512 + 20] ^= 1;
    assert!(matches!(says(&text), LvmError::Checksum { what: "text", at: 4608, .. }));
    let bad = says(&a("vg {\nid = \n}"));
    assert_eq!(
        bad.to_string(),
        "LVM text at byte 4608: line 3, column 1: found `}`, expected a value"
    );
    for (segment, expected) in [
        ((1, 1, "striped", LINEAR), "start_extent: found 1 (byte 65536)"),
        ((0, 0, "striped", LINEAR), "extent_count: found 0"),
        ((0, 1, "striped", "stripe_count = 2\nstripes = [\"pv0\", 0]"), "stripes: found 2 for 2"),
        ((0, 1, "striped", "stripe_count = 1\nstripes = [\"pv7\", 0]"), "stripes: found pv7"),
        ((0, 1, "striped", "stripe_count = 1\nstripes = [\"pv0\", -1]"), "stripes: found -1"),
    ] {
        let device = a(&group(1, &volume("lv", &[segment])));
        let found = inside(&[("data", &device)]);
        let fault = found.groups[0].volumes.as_ref().err().unwrap().to_string();
        assert!(fault.contains("vg1000/logical_volumes/lv/segment1/"), "{fault}");
        assert!(fault.contains(expected), "{fault}");
    }
    let mut changed = whole;
    set_text(&mut changed, group(9, "").as_bytes(), 2048);
    let source: Shared = Rc::new(changed);
    let text = PhysicalVolume::read("data", &source).unwrap().text.unwrap();
    assert_eq!(text.section("vg1000").unwrap().number("seqno"), Some(9));
}

#[test]
fn physical_volumes_and_groups_that_cannot_be_read_are_no_whole_answer() {
    let text = group(1, &volume("lv", &[(0, 3, "striped", LINEAR)]));
    let whole = physical(&uuid('a'), text.as_bytes(), 512, 16);
    assert!(inside(&[("a", &whole)]).places.iter().all(|place| place.content.is_ok()));
    // One damaged byte, in the label and then in the text. Further below, `b` has the text as well.
    for at in [512 + 40, 4096 + 520] {
        let mut hurt = whole.clone();
        hurt[at] ^= 1;
        let found = inside(&[("a", &hurt)]);
        let says = of(&found, "a").err().unwrap();
        assert!(says.contains("checksum"), "{at}: {says}");
    }
    let mut hurt = whole.clone();
    hurt[4096 + 520] ^= 1;
    let other = physical(&uuid('b'), text.as_bytes(), 512, 16);
    let found = inside(&[("a", &hurt), ("b", &other)]);
    assert!(of(&found, "a").is_ok() && of(&found, "vg1000/lv").is_ok());
    let text = text.replace("extent_size = 128", "extent_size = 0");
    let found = inside(&[("a", &physical(&uuid('a'), text.as_bytes(), 512, 16))]);
    assert!(of(&found, "vg1000").err().unwrap().contains("extent_size"));
}

#[test]
fn volumes_begin_where_the_first_linear_segment_lies_on_this_device() {
    let other = "stripe_count = 1\nstripes = [\"pv1\", 2]";
    let stripes = "stripe_count = 2\nstripe_size = 8\nstripes = [\"pv0\", 8, \"pv1\", 4]";
    let volumes = volume("two", &[(0, 3, "striped", LINEAR), (3, 2, "striped", other)])
        + &volume("elsewhere", &[(0, 2, "striped", other)])
        + &volume("striped", &[(0, 4, "striped", stripes)])
        + &volume("thin", &[(0, 1, "thin", "")]);
    let mut device = physical(&uuid('a'), group(1, &volumes).as_bytes(), 512, 16);
    let begin = |device: &[u8]| {
        let source: Shared = Rc::new(device.to_vec());
        beginnings(&PhysicalVolume::read("a", &source).unwrap())
    };
    let (start, len) = ((FIRST + 2 * EXTENT) as u64, 3 * EXTENT as u64);
    assert_eq!(begin(&device), std::slice::from_ref(&(start..start + len)));
    // A byte of the text, so that its checksum is wrong.
    device[4096 + 600] ^= 1;
    assert_eq!(begin(&device), []);
}
