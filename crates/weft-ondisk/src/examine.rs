//! Text of a superblock, field by field, as `mdadm --examine` prints it.
//!
//! Scripts and people know these lines, so names, order and number formats are those of mdadm. Four
//! details differ. Times are in UTC. The size of a RAID10 array is the one that the kernel
//! computes, in whole chunks. A failed member is called faulty, not spare. Characters of a name
//! that are not printable are escaped.
//!
//! Source: output of mdadm 4.2 for the arrays in `fixtures/md-super` and for superblocks with
//! single fields changed.

use crate::layout_id::Layouts;
use crate::{Features, Level, Minor, Role, Super1};
use weft_units::Sectors;

/// Sectors from the superblock that mdadm counts as used on versions 1.1 and 1.2, unless an area
/// reaches further: the superblock and 32 KiB for a bitmap.
const USED_AFTER_SUPER: i64 = 72;

impl Super1 {
    /// All lines that `mdadm --examine` prints for this superblock, as name and value.
    ///
    /// Also works for a superblock from [`Super1::decode`]. Print a line as `{name:>15} : {value}`.
    #[must_use]
    pub fn describe(&self, member_size: Sectors) -> Vec<(String, String)> {
        let mut lines = Vec::with_capacity(32);
        let mut line = |name: &str, value: String| lines.push((name.to_owned(), value));
        line("Magic", "a92b4efc".to_owned());
        line("Version", self.minor.to_string());
        line("Feature Map", format!("{:#x}", self.feature_map.0));
        line("Array UUID", self.set_uuid.to_string());
        line("Name", self.name());
        line("Creation Time", self.ctime.to_ctime());
        line("Raid Level", self.level.to_string());
        line("Raid Devices", self.raid_disks.to_string());
        self.describe_places(member_size, &mut line);
        let state = if self.resync_offset.is_clean() { "clean" } else { "active" };
        line("State", state.to_owned());
        line("Device UUID", self.device_uuid.to_string());
        self.describe_logs(&mut line);
        line("Checksum", format!("{:x} - correct", self.checksum()));
        line("Events", self.events.to_string());
        let meaningful = match self.level.row().layouts {
            Layouts::Ignored => false,
            Layouts::Zones => self.feature_map.contains(Features::RAID0_LAYOUT),
            Layouts::Copies | Layouts::Rotations(_) => true,
        };
        if meaningful {
            let layout = self.level.row().layouts.name(self.layout);
            line("Layout", layout.unwrap_or_else(|| format!("{:#x}", self.layout)));
        }
        if let Some(name) = self.level.row().chunk.name() {
            line(name, kib(self.chunk));
        }
        line("Device Role", self.describe_role());
        line("Array State", self.describe_slots());
        lines
    }

    /// Adds the lines about sizes, and about the positions of data and superblock.
    fn describe_places(&self, member_size: Sectors, line: &mut impl FnMut(&str, String)) {
        line("Avail Dev Size", format!("{} sectors{}", self.data_size.0, human(self.data_size)));
        if let Some(size) = self.array_size() {
            line("Array Size", format!("{} KiB{}", size.0 / 2, human(size)));
        }
        if self.level != Level::Raid0 && self.size != self.data_size {
            line("Used Dev Size", format!("{} sectors{}", self.size.0, human(self.size)));
        }
        if self.data_offset.0 > 0 {
            line("Data Offset", sectors(self.data_offset.0));
        }
        let moves = Features::RESHAPE.with(Features::NEW_OFFSET);
        if self.feature_map.contains(moves) {
            let offset = i128::from(self.data_offset.0) + i128::from(self.reshape.new_offset);
            line("New Offset", format!("{offset} sectors"));
        }
        line("Super Offset", sectors(self.super_offset.0));
        if self.feature_map.contains(Features::RECOVERY) {
            line("Recovery Offset", sectors(self.recovery_offset_raw));
        }
        if !self.feature_map.contains(moves) {
            let (before, after) = self.unused(member_size);
            if before > 0 || after > 0 {
                line("Unused Space", format!("before={before} sectors, after={after} sectors"));
            }
        }
    }

    /// Adds the lines about bitmap, logs, reshape and flags, and about the time of the last update.
    fn describe_logs(&self, line: &mut impl FnMut(&str, String)) {
        if let Some(offset) = self.bitmap_offset() {
            line("Internal Bitmap", format!("{offset} sectors from superblock"));
        }
        if let Some(ppl) = self.ppl() {
            let (size, offset) = (ppl.size, ppl.offset);
            line("PPL", format!("{size} sectors at offset {offset} sectors from superblock"));
        }
        self.describe_reshape(line);
        let flags: Vec<&str> = [(1, "write-mostly"), (2, "failfast")]
            .into_iter()
            .filter(|(bit, _)| self.devflags & bit != 0)
            .map(|(_, name)| name)
            .collect();
        if !flags.is_empty() {
            line("Flags", flags.join(" "));
        }
        line("Update Time", self.utime.to_ctime());
        if self.bblog_size > 0 && self.bblog_offset != 0 {
            let present = self.feature_map.contains(Features::BADBLOCKS);
            line(
                "Bad Block Log",
                format!(
                    "{} entries available at offset {} sectors{}",
                    u32::from(self.bblog_size) * 512 / 8,
                    self.bblog_offset,
                    if present { " - bad blocks present." } else { "" }
                ),
            );
        }
    }

    fn describe_reshape(&self, line: &mut impl FnMut(&str, String)) {
        if !self.feature_map.contains(Features::RESHAPE) {
            return;
        }
        let (reshape, now) = (&self.reshape, self.raid_disks);
        let position = Sectors(reshape.position);
        line("Reshape pos'n", format!("{}{}", position.0 / 2, human(position)));
        if reshape.delta_disks != 0 {
            let before = i64::from(now) - i64::from(reshape.delta_disks);
            line("Delta Devices", format!("{} ({before}->{now})", reshape.delta_disks));
        }
        let level = Level::from_code(reshape.new_level);
        if level != Some(self.level) {
            let name = level.map_or(reshape.new_level.to_string(), |level| level.to_string());
            line("New Level", name);
        }
        if reshape.new_layout != self.layout {
            let name = level.unwrap_or(self.level).row().layouts.name(reshape.new_layout);
            line("New Layout", name.unwrap_or_else(|| format!("{:#x}", reshape.new_layout)));
        }
        if reshape.new_chunk != self.chunk {
            line("New Chunksize", kib(reshape.new_chunk));
        }
    }

    fn describe_role(&self) -> String {
        match self.own_role() {
            Ok(Role::Active(slot)) => {
                let replacing = self.feature_map.contains(Features::REPLACEMENT);
                let kind = if replacing { "Replacement" } else { "Active" };
                format!("{kind} device {}", slot.0)
            }
            Ok(Role::Journal) => "Journal".to_owned(),
            Ok(role) => role.to_string(),
            Err(_) => "none (not in the role table)".to_owned(),
        }
    }

    fn describe_slots(&self) -> String {
        // A damaged number of slots must not print millions of them.
        let slots = self.slots().min(crate::ROLES_MAX);
        let fillers =
            |slot: u32| self.roles.iter().filter(|code| u32::from(**code) == slot).count();
        let states: String = (0..slots)
            .map(|slot| match fillers(slot) {
                0 => '.',
                1 => 'A',
                _ => 'R',
            })
            .collect();
        format!("{states} ('A' == active, '.' == missing, 'R' == replacing)")
    }

    /// Number of sectors of the member before its data, and number after its data, that mdadm
    /// counts as unused.
    fn unused(&self, member_size: Sectors) -> (u64, u64) {
        let bblog = i64::from(self.bblog_offset);
        let bblog_end = match self.bblog_size {
            0 => 0,
            size => bblog + i64::from(size),
        };
        let ppl = self.ppl().map(|ppl| (i64::from(ppl.offset), i64::from(ppl.size)));
        let data_end = self.data_offset.0.saturating_add(self.used_size().0);
        match self.minor {
            Minor::V1_0 => {
                let bitmap = self.bitmap_offset().map(i64::from);
                let areas = [Some(bblog), bitmap, ppl.map(|(offset, _)| offset)];
                let first = areas.into_iter().flatten().min().unwrap_or(0).min(0);
                let end = self.super_offset.0.saturating_sub(first.unsigned_abs());
                (self.data_offset.0, end.saturating_sub(data_end))
            }
            Minor::V1_1 | Minor::V1_2 => {
                let areas = [bblog_end, ppl.map_or(0, |(offset, size)| offset + size)];
                let last = areas.into_iter().max().unwrap_or(0).max(USED_AFTER_SUPER);
                let end = self.super_offset.0.saturating_add(last.unsigned_abs());
                let (before, after) = (
                    self.data_offset.0.saturating_sub(end),
                    member_size.0.saturating_sub(data_end),
                );
                (before, after)
            }
        }
    }
}

fn sectors(count: u64) -> String {
    format!("{count} sectors")
}

fn kib(chunk: Sectors) -> String {
    format!("{}K", chunk.0 / 2)
}

/// Size in MiB and MB, from 2 GiB on in GiB and GB, from 2 TiB on in TiB and TB; empty below 5,000
/// KiB, where the plain number is readable.
pub(crate) fn human(size: Sectors) -> String {
    let bytes = u128::from(size.0) * 512;
    let (binary, decimal, letter) = match bytes {
        0..5_120_000 => return String::new(),
        5_120_000..0x8000_0000 => (1_u128 << 20, 1_000_000_u128, 'M'),
        0x8000_0000..0x200_0000_0000 => (1 << 30, 1_000_000_000, 'G'),
        _ => (1 << 40, 1_000_000_000_000, 'T'),
    };
    let hundredths = |unit: u128| (bytes * 100 + unit / 2) / unit;
    let (binary, decimal) = (hundredths(binary), hundredths(decimal));
    format!(
        " ({}.{:02} {letter}iB {}.{:02} {letter}B)",
        binary / 100,
        binary % 100,
        decimal / 100,
        decimal % 100
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_rounded_to_hundredths() {
        for (size, expected) in [
            (0, ""),
            (9_999, ""),
            (10_000, " (4.88 MiB 5.12 MB)"),
            (29_298, " (14.31 MiB 15.00 MB)"),
            (2_097_152, " (1024.00 MiB 1073.74 MB)"),
            (4_194_304, " (2.00 GiB 2.15 GB)"),
            (6_442_450_944, " (3.00 TiB 3.30 TB)"),
        ] {
            assert_eq!(human(Sectors(size)), expected);
        }
        assert!(human(Sectors(u64::MAX)).starts_with(" (8589934592.00 TiB"));
    }
}
