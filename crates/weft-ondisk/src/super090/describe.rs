//! Text of a 0.90 superblock, as `mdadm --examine` prints it.

use super::words::MAGIC;
use super::{Disk090, Super090};
use crate::layout_id::Layouts;
use crate::{Level, MdTime};
use weft_units::Sectors;

impl Super090 {
    /// All lines that `mdadm --examine` prints for this superblock before the table of members, as
    /// name and value.
    ///
    /// Also works for a superblock from [`Super090::decode`]. Print a line as `{name:>15} :
    /// {value}`. Two details differ from mdadm 4.2: the size of the array is the one that the
    /// kernel computes, in whole chunks, and sizes of 2 TiB and more are not printed as negative.
    #[must_use]
    pub fn describe(&self) -> Vec<(String, String)> {
        let mut lines = Vec::with_capacity(32);
        let mut line = |name: &str, value: String| lines.push((name.to_owned(), value));
        let seconds = |time: u32| MdTime::from_secs(time.into()).to_ctime();
        line("Magic", format!("{MAGIC:08x}"));
        line("Version", format!("0.{:02}.{:02}", self.minor_version, self.patch_version));
        line("UUID", self.set_uuid.to_string());
        if self.not_persistent != 0 {
            line("Eedk", "not persistent".to_owned());
        }
        line("Creation Time", seconds(self.ctime));
        line("Raid Level", self.level.to_string());
        if self.level.uses_size() {
            let kib = |size: Sectors| format!("{}{}", size.0 / 2, crate::examine::human(size));
            line("Used Dev Size", kib(self.size()));
            if let Some(size) = self.array_size() {
                line("Array Size", kib(size));
            }
        }
        line("Raid Devices", self.raid_disks.to_string());
        line("Total Devices", self.nr_disks.to_string());
        line("Preferred Minor", self.md_minor.to_string());
        self.describe_reshape(&mut line);
        line("Update Time", seconds(self.utime));
        let clean = self.state & Self::CLEAN != 0;
        line("State", if clean { "clean" } else { "active" }.to_owned());
        if self.state & Self::BITMAP_PRESENT != 0 {
            line("Internal Bitmap", "present".to_owned());
        }
        line("Active Devices", self.active_disks.to_string());
        line("Working Devices", self.working_disks.to_string());
        line("Failed Devices", self.failed_disks.to_string());
        line("Spare Devices", self.spare_disks.to_string());
        line("Checksum", format!("{:x} - correct", self.checksum()));
        line("Events", self.events.to_string());
        if matches!(self.level.row().layouts, Layouts::Copies | Layouts::Rotations(_)) {
            let layout = self.level.row().layouts.name(self.layout);
            line("Layout", layout.unwrap_or_else(|| "-unknown-".to_owned()));
        }
        if let Some(name) = self.level.row().chunk.name() {
            line(name, format!("{}K", self.chunk_bytes >> 10));
        }
        lines
    }

    fn describe_reshape(&self, line: &mut impl FnMut(&str, String)) {
        let (reshape, now) = (&self.reshape, self.raid_disks);
        if !self.is_reshaping() || reshape.position == u64::MAX {
            return;
        }
        let position = Sectors(reshape.position);
        line("Reshape pos'n", format!("{}{}", position.0 / 2, crate::examine::human(position)));
        if reshape.delta_disks != 0 {
            let before = i64::from(now) - i64::from(reshape.delta_disks);
            line("Delta Devices", format!("{} ({before}->{now})", reshape.delta_disks));
        }
        let code = reshape.new_level.cast_signed();
        let level = Level::from_code(code);
        if level != Some(self.level) {
            let name = level.map_or("-unknown-".to_owned(), |level| level.to_string());
            line("New Level", name);
        }
        if reshape.new_layout != self.layout {
            let name = self.level.row().layouts.name(reshape.new_layout);
            let code = reshape.new_layout;
            match self.level.row().layouts {
                Layouts::Rotations(_) => {
                    line("New Layout", name.unwrap_or_else(|| "-unknown-".to_owned()));
                }
                Layouts::Copies => {
                    let kind = if code & 0x1_0000 != 0 { "offset" } else { "far" };
                    line("New Layout", format!("near={}, {kind}={}", code & 255, code >> 8 & 255));
                }
                Layouts::Ignored | Layouts::Zones => {}
            }
        }
        if reshape.new_chunk_bytes != self.chunk_bytes {
            line("New Chunksize", reshape.new_chunk_bytes.to_string());
        }
    }

    /// The table of members as `mdadm --examine` prints it, without device names: the numbers may
    /// be those of another machine.
    #[must_use]
    pub fn describe_disks(&self) -> Vec<String> {
        let row = |label: &str, disk: &Disk090| {
            let Disk090 { number, major, minor, raid_disk, .. } = disk;
            let raid_disk = raid_disk.cast_signed();
            let states = disk.states();
            format!(
                "{label:>4} {number:>5}   {major:>5}    {minor:>5}    {raid_disk:>5}     {states}"
            )
        };
        let shown = self.slots().saturating_add(self.spare_disks) as usize;
        let mut lines = vec!["      Number   Major   Minor   RaidDevice State".to_owned()];
        lines.push(row("this", &self.this_disk));
        for (number, disk) in self.disks.iter().enumerate().take(shown) {
            lines.push(row(&number.to_string(), disk));
        }
        lines
    }
}
