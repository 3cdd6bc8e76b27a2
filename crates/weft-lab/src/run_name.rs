//! Names of the run folders of patch 001 (IO-less dirty throttling), and of the cases in its
//! tables.
//!
//! ```text
//! xfs-10dd-1M-24p-15984M-100M:10-3.1.0-rc4-vanilla+
//! │   │    │  │   │      │    │  kernel, to the end of the name
//! │   │    │  │   │      │    background threshold: percent, or an amount
//! │   │    │  │   │      dirty threshold
//! │   │    │  │   memory of the machine in MiB
//! │   │    │  CPUs
//! │   │    block size of the writers
//! │   writers on each disk
//! file system
//! ```
//!
//! The kernel reports a little less memory than the machine has, and the value changes from boot to
//! boot. The memory is therefore rounded up to a power of two, as the script `compare.rb` did, so
//! that rows of different boots match.
//!
//! Source   patch 001's mail of 2011-09-28 (Wu Fengguang to linux-mm), with the script compare.rb
//!          attached to it; writeback.md §4.2, §5.1

/// A part of the name of a run folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// File system on the disks.
    Fs,
    /// Number of writers on each disk.
    Dd,
    /// Block size of the writers.
    Bs,
    /// Number of CPUs.
    Cpu,
    /// Memory of the machine in MiB, rounded up to a power of two.
    Mem,
    /// Dirty threshold: a percentage, or an amount such as `100M`.
    Thresh,
    /// Background threshold: a percentage, or an amount such as `100M`.
    BgThresh,
    /// Name of the kernel, which extends to the end of the folder's name.
    Kernel,
}

impl Field {
    /// Every field, in the order of the name.
    pub const ALL: [Self; 8] = [
        Self::Fs,
        Self::Dd,
        Self::Bs,
        Self::Cpu,
        Self::Mem,
        Self::Thresh,
        Self::BgThresh,
        Self::Kernel,
    ];

    /// Name of the field in the script compare.rb.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Fs => "fs",
            Self::Dd => "dd",
            Self::Bs => "bs",
            Self::Cpu => "cpu",
            Self::Mem => "mem",
            Self::Thresh => "thresh",
            Self::BgThresh => "bg_thresh",
            Self::Kernel => "kernel",
        }
    }
}

/// The name of a run folder, split into its fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunName {
    /// Values of the fields, in the order of [`Field::ALL`].
    fields: [String; 8],
}

impl RunName {
    /// Parses a name; `None` if the name has another form.
    ///
    /// ```
    /// use weft_lab::compare::{Field, RunName};
    /// let name = RunName::parse("xfs-10dd-1M-24p-15984M-100M:10-3.1.0-rc4-vanilla+").unwrap();
    /// assert_eq!(name.field(Field::Kernel), "3.1.0-rc4-vanilla+");
    /// assert_eq!(name.without(Some(Field::Kernel)), "xfs-10dd-1M-24p-16384M-100M:10-X");
    /// ```
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let parts: Vec<&str> = text.splitn(7, '-').collect();
        let [fs, dd, bs, cpu, mem, thresholds, kernel] = parts[..] else { return None };
        let (thresh, bg_thresh) = thresholds.split_once(':')?;
        let is_amount = |text: &str| {
            !text.is_empty() && text.chars().all(|c| c.is_ascii_digit() || "kMG".contains(c))
        };
        let is_fs = |text: &str| {
            !text.is_empty() && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit())
        };
        let counts = |text: &str, unit: &str| text.strip_suffix(unit).is_some_and(is_number);
        let fits = is_fs(fs)
            && counts(dd, "dd")
            && (counts(bs, "k") || counts(bs, "M"))
            && counts(cpu, "p")
            && is_amount(thresh)
            && is_amount(bg_thresh)
            && !kernel.is_empty();
        let mem: u64 = mem.strip_suffix('M').filter(|mem| is_number(mem))?.parse().ok()?;
        let mem = format!("{}M", mem.checked_next_power_of_two()?);
        let fields = [fs, dd, bs, cpu, &mem, thresh, bg_thresh, kernel].map(str::to_owned);
        fits.then_some(Self { fields })
    }

    /// Value of a field of the name, as text.
    #[must_use]
    pub fn field(&self, field: Field) -> &str {
        &self.fields[field as usize]
    }

    /// The name with an X in place of the field `blank`; all fields are kept for `None`.
    #[must_use]
    pub fn without(&self, blank: Option<Field>) -> String {
        let of = |field| if blank == Some(field) { "X" } else { self.field(field) };
        let [fs, dd, bs, cpu, mem, thresh, bg_thresh, kernel] = Field::ALL.map(of);
        format!("{fs}-{dd}-{bs}-{cpu}-{mem}-{thresh}:{bg_thresh}-{kernel}")
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_eight_fields_and_memory_is_rounded_up() {
        let name = RunName::parse("ext4-100dd-4k-8p-2942M-400M:300M-3.1.0-rc4-bgthresh3+").unwrap();
        let fields = Field::ALL.map(|field| name.field(field));
        let kernel = "3.1.0-rc4-bgthresh3+";
        assert_eq!(fields, ["ext4", "100dd", "4k", "8p", "4096M", "400M", "300M", kernel]);
        assert_eq!(
            name.without(Some(Field::Fs)),
            format!("X-100dd-4k-8p-4096M-400M:300M-{kernel}")
        );
        let exact = RunName::parse("xfs-1dd-1M-24p-16384M-100M:10-k").unwrap();
        assert_eq!(exact.without(None), "xfs-1dd-1M-24p-16384M-100M:10-k");
    }

    #[test]
    fn other_names_are_none() {
        for text in [
            "",
            "xfs",
            "xfs-10dd-1M-24p-16384M-100M:10",
            "xfs-10dd-1M-24p-16384M-100M:10-",
            "xfs-10dd-1M-24p-16384M-100M-kernel",
            "XFS-10dd-1M-24p-16384M-100M:10-kernel",
            "xfs-dd-1M-24p-16384M-100M:10-kernel",
            "xfs-10dd-1T-24p-16384M-100M:10-kernel",
            "xfs-10dd-1M-24-16384M-100M:10-kernel",
            "xfs-10dd-1M-24p-99999999999999999999M-100M:10-kernel",
            "xfs-10dd-1M-24p-16384M-100%:10-kernel",
        ] {
            assert_eq!(RunName::parse(text), None, "{text}");
        }
    }
}
