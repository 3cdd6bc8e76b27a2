//! Changed bytes in maps of GNU ddrescue: an error that names a line, or a map of all of the disk.

use weft_runtime::mapfile::{Mapfile, Status};
use weft_testing::fuzz;
use weft_units::rng::{Rng, mix};

/// A map as ddrescue writes it.
const MAP: &str = "# Mapfile. Created by GNU ddrescue version 1.27
# Command line: ddrescue -d /dev/sdd disk3.img disk3.map
# Start time:   2026-11-26 15:00:00
# current_pos  current_status  current_pass
0x00120000     +               1
#      pos        size  status
0x00000000  0x00117000  +
0x00117000  0x00000200  -
0x00117200  0x00008E00  *
0x00120000  0x1000  /
1183744 0x10000 ?
0x131000  0xFFFFFFEC000  +
";

/// Numbers at the limits of fields, and texts that are not numbers.
const NUMBERS: [&str; 9] = [
    "0",
    "-1",
    "0x",
    "08",
    "0xffffffffffffffff",
    "18446744073709551616",
    "0x8000000000000000",
    "512",
    "1e3",
];

/// Another version of the map: bytes, words, lines.
fn changed(rng: &mut Rng) -> Vec<u8> {
    let mut lines: Vec<String> = MAP.lines().map(str::to_owned).collect();
    for _ in 0..=rng.below(2) {
        // Most comment lines stay as they are, because they have no effect.
        let line = [1, 4, 6, 7, 8, 9, 10, 11][rng.index(8)].min(lines.len() - 1);
        let mut words: Vec<String> = lines[line].split_whitespace().map(str::to_owned).collect();
        match rng.below(6) {
            0 => drop(lines.remove(line)),
            1 => lines.insert(line, lines[line].clone()),
            2 => lines.swap(line, 4),
            _ if words.is_empty() => {}
            3 => drop(words.remove(rng.index(words.len()))),
            _ => {
                let word = rng.index(words.len());
                words[word] = match rng.below(3) {
                    0 => rng.pick(&["+", "-", "*", "/", "?", "F", "++"]).to_owned(),
                    1 => rng.pick(&NUMBERS).to_owned(),
                    _ => format!("{:#x}", rng.next_u64() >> rng.below(64)),
                };
                lines[line] = words.join(" ");
            }
        }
    }
    let mut bytes = (lines.join("\n") + "\n").into_bytes();
    if rng.below(3) == 0 {
        let at = rng.index(bytes.len());
        bytes[at] = rng.next_u64().to_le_bytes()[0];
    }
    if rng.below(10) == 0 {
        bytes.truncate(rng.index(bytes.len()));
    }
    bytes
}

/// Checks that the areas are in order without a gap, that every byte is counted once, and that the
/// text of the map parses to the same map.
fn check(map: &Mapfile) {
    let mut next = 0;
    let mut sums = [0_u64; 5];
    for (area, status) in map.areas() {
        assert!(area.start == next && area.end > area.start, "{area:?} in {map:?}");
        assert_eq!(map.status(area.start), Some(status));
        sums[status as usize] += area.end - area.start;
        next = area.end;
    }
    assert_eq!(next, map.size());
    let all =
        [Status::Bad, Status::Finished, Status::NonScraped, Status::NonTried, Status::NonTrimmed];
    assert_eq!(all.map(|status| map.bytes(status)), sums, "{map:?}");
    if map.size() > 0 {
        assert_eq!(Mapfile::parse(map.to_text("# title\n").as_bytes()).as_ref(), Ok(map));
    }
}

#[test]
fn changed_bytes_of_maps_give_errors_and_no_panic() {
    check(&Mapfile::parse(MAP.as_bytes()).unwrap());
    let cases = fuzz::cases(2000);
    let mut rng = Rng::new(mix(fuzz::seed()) ^ mix(0) ^ 30);
    let (mut read, mut refused) = (0, 0);
    for _ in 0..cases {
        match Mapfile::parse(&changed(&mut rng)[..]) {
            Ok(map) => {
                read += 1;
                check(&map);
            }
            Err(error) => {
                refused += 1;
                let is_told = error.starts_with("line ") || error.starts_with("found no area");
                assert!(is_told && error.len() < 300, "{error}");
            }
        }
    }
    assert!(read > cases / 5 && refused > cases / 5, "{read} read, {refused} refused");
}
