//! Arrays that the kernel wrote, read without any member that the level can do without.

mod common;

use common::{FIXTURES, contents, exits, weft};
use tempfile::tempdir;

#[test]
fn cat_equals_what_the_kernel_read_back_without_any_tolerable_member() {
    for fixture in FIXTURES {
        let dir = tempdir().unwrap();
        let members = fixture.unpack(dir.path());
        let before = contents(dir.path());
        let mut absent: Vec<Vec<usize>> = vec![vec![]];
        absent.extend((0..fixture.members).map(|one| vec![one]));
        if fixture.spare == 2 {
            absent.extend(
                (0..fixture.members)
                    .flat_map(|one| (one + 1..fixture.members).map(move |two| vec![one, two])),
            );
        }
        for absent in absent {
            let mut arguments = vec!["cat"];
            let present = members.iter().enumerate().filter(|(index, _)| !absent.contains(index));
            arguments.extend(present.map(|(_, name)| name.as_str()));
            let output = weft(dir.path(), &arguments);
            assert!(output.status.success(), "{} without {absent:?}: {output:?}", fixture.name);
            let expected = fixture.content(output.stdout.len() as u64);
            assert_eq!(output.stdout.len(), 6144 * 512, "{}", fixture.name);
            assert!(output.stdout == expected, "{} without {absent:?}", fixture.name);
        }
        assert_eq!(contents(dir.path()), before, "{}: cat writes nothing", fixture.name);
    }
}

#[test]
fn cat_gives_any_part_and_refuses_too_few_members() {
    let [_, fixture, _] = FIXTURES;
    let dir = tempdir().unwrap();
    let members = fixture.unpack(dir.path());
    let all = fixture.content(6144 * 512);
    for (offset, length) in [(0, 1), (511, 2), (65_535, 65_538), (3_145_000, 728), (1000, 0)] {
        let (offset_text, length_text) = (offset.to_string(), length.to_string());
        let mut arguments = vec!["cat", "--offset", &offset_text, "--length", &length_text];
        arguments.extend(members[1..].iter().map(String::as_str));
        let output = weft(dir.path(), &arguments);
        assert!(output.status.success(), "{output:?}");
        assert!(output.stdout == all[offset..offset + length], "{offset} {length}");
    }
    let text = exits(dir.path(), 3, &["cat", &members[0], &members[1]]).err;
    assert!(text.contains("slot 2 missing"), "{text}");
}

#[test]
fn examine_reads_as_mdadm_printed_it() {
    let [_, fixture, _] = FIXTURES;
    let dir = tempdir().unwrap();
    let members = fixture.unpack(dir.path());
    let text = exits(dir.path(), 0, &["examine", &members[0]]).out;
    let expected = "m0.img:\n          Magic : a92b4efc\n        Version : 1.2\n    \
        Feature Map : 0x0\n     Array UUID : a61dfb7a:565c2046:39f33691:2d9a74d3\n           \
        Name : lab:raid5-4x64k-ls\n  Creation Time : Fri Nov 20 07:04:14 2026\n     \
        Raid Level : raid5\n   Raid Devices : 4\n\n Avail Dev Size : 2048 sectors\n     \
        Array Size : 3072 KiB\n    Data Offset : 2048 sectors\n   Super Offset : 8 sectors\n   \
        Unused Space : before=1968 sectors, after=0 sectors\n          State : clean\n    \
        Device UUID : c3421d4c:b9e93a86:1ca19477:bac74663\n\n    \
        Update Time : Fri Nov 20 07:04:14 2026\n  \
        Bad Block Log : 512 entries available at offset 16 sectors\n       \
        Checksum : 969d7e6f - correct\n         Events : 2\n\n         \
        Layout : left-symmetric\n     Chunk Size : 64K\n\n   Device Role : Active device 0\n   \
        Array State : AAAA ('A' == active, '.' == missing, 'R' == replacing)\n";
    assert_eq!(text, expected);
}
