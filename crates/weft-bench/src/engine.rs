//! Engine benchmark: CPU cost of the engine, and its number of member requests.
//!
//! There are four questions. Alone, without members and memory: how many 4 KiB random writes does
//! the engine process per second of CPU time, and how much do RAID 0, 1 and 10 add to a request of
//! a bare member? With members in memory: how fast is a rebuild (`rebuild.rs`)? On a RAID 5 of four
//! real files, created and served by `weft`: how many member requests are there, and how fast is
//! the volume, with the policies of patches 000 (stripe priority) and 004 (stripe size) on and off?
//! The counts are compared with those of kernel md. Each variant has 4 MiB of stripe cache, as
//! kernel md had; the variant with stripes of 64 KiB has 6 % more, because md's minimum is 17
//! stripes.

use std::collections::VecDeque;
use std::path::Path;
use std::time::{Duration, Instant};

use weft_engine::knobs::Knobs;
use weft_export::client::NbdClient;
use weft_export::control::{Client, Command, MemberStatus};
use weft_ondisk::Level;
use weft_units::rng::Rng;

use crate::BenchError;
use crate::alone::{Alone, RequestKind};
use crate::rebuild;
use crate::rounds::{Effort, in_turns, per_cpu_second};
use crate::sheet::{Sheet, SheetRow};
use crate::weft::{FILES, FileVolume};

/// Size of the stripe cache per member, in bytes: 256 stripes of 4 KiB. Variants with larger
/// stripes have fewer stripes.
const CACHE_BYTES: u64 = 256 * 4096;

/// Number of requests in flight. Random loads have twice as many, like two jobs of fio.
const DEPTH: usize = 64;

/// Fills the rows of all four questions: the engine alone, levels over a bare member, rebuilds, and
/// a volume. The volume lies on four files below `dir` (`None`: below the directory for temporary
/// files), and is measured with and without stripe priority (patch 000) and larger stripes (004).
///
/// # Errors
/// The volume cannot be created or served, or a request fails.
pub fn measure(dir: Option<&Path>, effort: Effort, sheet: &mut Sheet) -> Result<(), BenchError> {
    let rounds = effort.rounds(5, 1);
    let cases = cases(effort.quick)?;
    let stripes = [256, 4096, 65_536];
    let over_bare = LEVELS.len() * 2;
    let counted = cases.iter().map(|case| case.rows_count()).sum::<usize>();
    sheet.expect(stripes.len() + over_bare + rebuild::ROWS + counted);
    for stripes in stripes {
        let case = format!("4 KiB random writes alone, {stripes} stripes");
        sheet.now(&case);
        sheet.push(alone(case, stripes, rounds, effort.quick)?);
    }
    for (level, members) in LEVELS {
        for asked in [RequestKind::RandomRead, RequestKind::RandomWrite] {
            let what = if asked == RequestKind::RandomRead { "read" } else { "write" };
            let case = format!("4 KiB random {what} of {level}, over a bare member");
            sheet.now(&case);
            sheet.push(over_bare_member(case, (level, members), asked, effort)?);
        }
    }
    rebuild::measure(rounds, sheet)?;
    over_files(&FileVolume::make(dir)?, &cases, rounds, sheet)
}

/// Levels that add little work to a request, each with its number of members.
const LEVELS: [(Level, usize); 3] = [(Level::Raid0, 4), (Level::Raid1, 2), (Level::Raid10, 4)];
/// Largest CPU time, in nanoseconds, that a level may add to that of a request of a bare member.
const OVER_BARE_MAX: f64 = 150.0;

/// Measures how many nanoseconds of CPU time a request to an array of a level costs more than the
/// same request to a single member without metadata. Returns the sheet's row.
fn over_bare_member(
    case: String,
    (level, members): (Level, usize),
    asked: RequestKind,
    effort: Effort,
) -> Result<SheetRow, BenchError> {
    let wall = Duration::from_millis(if effort.quick { 20 } else { 100 });
    let mut engines = [Alone::of_level(level, members, 4096, 64)?, Alone::single(4096, 64)?];
    for engine in &mut engines {
        engine.carry_out(asked, 2000)?;
    }
    let [level, bare] = &mut engines;
    let each = |engine: &mut Alone| -> Result<f64, BenchError> {
        let mut failed = Ok(());
        let rate = per_cpu_second(wall, || {
            if failed.is_ok() {
                failed = engine.carry_out(asked, 2000);
            }
        });
        failed.map(|()| 1e9 / (rate * 2000.0))
    };
    let (mut of_level, mut of_bare) = (|| each(level), || each(bare));
    let both = in_turns(effort.rounds(15, 3), &mut [&mut of_level, &mut of_bare])?;
    let figures: Vec<f64> =
        both[0].iter().zip(&both[1]).map(|(level, bare)| level - bare).collect();
    Ok(SheetRow::fewer(case, "ns", &figures, None).limit(OVER_BARE_MAX).with_quartiles(&figures))
}

/// Measures how many random writes of 4 KiB the engine alone processes per second of CPU time, with
/// a cache of `stripes` stripes. Returns the sheet's row.
fn alone(case: String, stripes: u32, rounds: u32, quick: bool) -> Result<SheetRow, BenchError> {
    let knobs = Knobs { stripe_cache_size: stripes, ..Knobs::md() };
    let mut engine = Alone::new(knobs, 4096, 64)?;
    // Warm-up until the cache is full.
    engine.carry_out(RequestKind::RandomWrite, u64::from(stripes) + 2000)?;
    let batch = 2000;
    let wall = Duration::from_millis(if quick { 50 } else { 300 });
    let mut failed = Ok(());
    let mut figures = Vec::new();
    for _ in 0..rounds {
        let rate = per_cpu_second(wall, || {
            if failed.is_ok() {
                failed = engine.carry_out(RequestKind::RandomWrite, batch);
            }
        });
        figures.push(rate * batch as f64);
    }
    failed?;
    Ok(SheetRow::faster(case, "writes per CPU second", &figures, None))
}

/// A workload, with the variants of the knobs that are compared under it.
struct Case {
    name: &'static str,
    load: Load,
    variants: Vec<(String, Knobs)>,
    /// Numbers of member reads and of member writes of kernel md under the same load; `None` if
    /// they were not measured.
    kernel: Option<(f64, f64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Load {
    /// Sequential requests of 64 KiB.
    Sequential,
    /// Blocks of 4 KiB in random order, each once.
    Random,
    /// Sequential requests of 4 KiB; every fourth write is at a random offset.
    Mixed,
}

impl Case {
    fn rows_count(&self) -> usize {
        (if self.load == Load::Random { 4 } else { 3 }) * self.variants.len()
    }
}

/// md's knobs with these changes, each by name and value.
fn knobs(settings: &[(&str, String)]) -> Result<Knobs, BenchError> {
    let mut knobs = Knobs::md();
    for (name, value) in settings {
        let knob = knobs.parse(name, value).map_err(BenchError::failed)?;
        knobs.set(knob);
    }
    Ok(knobs)
}

fn cases(quick: bool) -> Result<Vec<Case>, BenchError> {
    let sizes: &[u64] = if quick { &[4, 64] } else { &[4, 16, 64] };
    let stripes = || -> Result<Vec<(String, Knobs)>, BenchError> {
        let auto = [
            ("stripe_size", "auto".to_owned()),
            ("stripe_cache_bytes", (CACHE_BYTES * FILES as u64).to_string()),
            ("plan_rule", "least".to_owned()),
        ];
        let auto = Ok(("stripe_size=auto".to_owned(), knobs(&auto)?));
        let fixed = sizes.iter().map(|kib| {
            let bytes = kib << 10;
            // At least md's minimum of 17 stripes, which takes 6 % more memory with stripes of 64
            // KiB.
            let stripes = (CACHE_BYTES / bytes).max(17);
            let settings =
                [("stripe_size", bytes.to_string()), ("stripe_cache_size", stripes.to_string())];
            Ok((format!("stripe_size={kib}K"), knobs(&settings)?))
        });
        fixed.chain([auto]).collect()
    };
    let mut priority = vec![("fifo".to_owned(), knobs(&[("priority", "fifo".to_owned())])?)];
    for threshold in [0, 1, 256] {
        let name = "preread_bypass_threshold";
        priority.push((format!("{name}={threshold}"), knobs(&[(name, threshold.to_string())])?));
    }
    Ok(vec![
        Case {
            name: "64 KiB sequential writes",
            load: Load::Sequential,
            variants: stripes()?,
            kernel: Some(kernel("64kwrite-qd64")?),
        },
        Case {
            name: "4 KiB random writes",
            load: Load::Random,
            variants: stripes()?,
            kernel: Some(kernel("4krandwrite-qd64")?),
        },
        Case { name: "4 KiB mixed writes", load: Load::Mixed, variants: priority, kernel: None },
    ])
}

/// Numbers of member reads and of member writes of kernel md, from the row `case` of
/// `kernel-md.csv`.
fn kernel(case: &str) -> Result<(f64, f64), BenchError> {
    let lines = include_str!("kernel-md.csv").lines();
    let row = lines.map(|line| line.split(',').collect::<Vec<_>>()).find(|row| row[0] == case);
    let number = |index: usize| row.as_ref().and_then(|row| row.get(index)?.parse().ok());
    number(2).zip(number(3)).ok_or_else(|| BenchError::failed(format!("kernel-md.csv: no {case}")))
}

/// Rate and numbers of member requests in one run of a variant.
struct Counted {
    mb_per_s: f64,
    reads: f64,
    writes: f64,
}

fn over_files(
    volume: &FileVolume,
    cases: &[Case],
    rounds: u32,
    sheet: &mut Sheet,
) -> Result<(), BenchError> {
    // Every block of the files is allocated before the measurement.
    run(volume, Load::Sequential, &Knobs::default())?;
    for case in cases {
        let mut counted: Vec<Vec<Counted>> = case.variants.iter().map(|_| Vec::new()).collect();
        for _ in 0..rounds {
            for ((variant, knobs), counted) in case.variants.iter().zip(&mut counted) {
                sheet.now(&format!("{}, {variant}", case.name));
                counted.push(run(volume, case.load, knobs)?);
            }
        }
        // The first variant is without the patch: it has stripes of 4 KiB, or takes held stripes in
        // order of arrival.
        let of = |index: usize, figure: fn(&Counted) -> f64| -> Vec<f64> {
            counted[index].iter().map(figure).collect()
        };
        let before = of(0, |it| it.mb_per_s);
        for (index, (variant, _)) in case.variants.iter().enumerate() {
            let name = |what: &str| format!("{}, {variant}: {what}", case.name);
            let rate = of(index, |it| it.mb_per_s);
            let baseline = (index > 0).then_some((case.variants[0].0.as_str(), &before[..]));
            sheet.push(SheetRow::faster(name("rate"), "MB/s", &rate, baseline));
            let reads = of(index, |it| it.reads);
            let writes = of(index, |it| it.writes);
            let md = case.kernel.map(|(reads, writes)| {
                (vec![reads; counted[index].len()], vec![writes; counted[index].len()])
            });
            let named = |md: &'_ Option<(Vec<f64>, Vec<f64>)>, of_reads: bool| {
                md.clone().map(|md| ("kernel md", if of_reads { md.0 } else { md.1 }))
            };
            for (what, figures, of_reads) in [("reads", &reads, true), ("writes", &writes, false)] {
                let md = named(&md, of_reads);
                let md = md.as_ref().map(|(name, figures)| (*name, &figures[..]));
                let limit = limit(case, *variant == "stripe_size=auto", index == 0, of_reads);
                let row = SheetRow::fewer(name(what), "member requests", figures, md);
                sheet.push(row.limit(limit));
            }
            if let (Load::Random, Some((md_reads, md_writes))) = (case.load, case.kernel) {
                let both: Vec<f64> = reads.iter().zip(&writes).map(|(r, w)| r + w).collect();
                let md = vec![md_reads + md_writes; both.len()];
                let md = Some(("kernel md", &md[..]));
                // Issue 3: with stripes of 4 KiB, no more member requests in total than kernel md.
                let mark = (index == 0).then_some(1.0);
                let row = SheetRow::fewer(name("reads and writes"), "member requests", &both, md);
                sheet.push(row.mark(mark));
            }
        }
    }
    Ok(())
}

/// Largest number of member reads (`of_reads`) or of member writes that a variant may need under a
/// sequential load; `None` if there is no limit. The `first` variant, with stripes of 4 KiB, may
/// write as often as kernel md. With `stripe_size=auto` (`auto`) there may be one write for each
/// chunk plus 6 %, and one read, for the full stripe that the load leaves incomplete at its end.
fn limit(case: &Case, auto: bool, first: bool, of_reads: bool) -> Option<f64> {
    let md = case.kernel.filter(|_| case.load == Load::Sequential)?;
    match (auto, of_reads) {
        (true, true) => Some(1.0),
        (true, false) => Some(2900.0),
        (false, false) if first => Some(md.1),
        (false, _) => None,
    }
}

/// Serves the files with these knobs and runs the load. Returns its rate, and the numbers of member
/// requests that it caused.
fn run(volume: &FileVolume, load: Load, knobs: &Knobs) -> Result<Counted, BenchError> {
    let mut counted = None;
    volume.serve(knobs, &mut |uri, control| {
        let mut client = NbdClient::connect(uri).map_err(BenchError::Failed)?;
        let mut control = Client::connect(control).map_err(BenchError::failed)?;
        let before = requests(&mut control)?;
        let start = Instant::now();
        let bytes = write(&mut client, load)?;
        let cookie = client.flush().map_err(BenchError::Failed)?;
        client.finish(cookie).map_err(BenchError::Failed)?;
        let took = start.elapsed();
        let after = requests(&mut control)?;
        counted = Some(Counted {
            mb_per_s: bytes as f64 / 1e6 / took.as_secs_f64().max(1e-9),
            reads: (after.0 - before.0) as f64,
            writes: (after.1 - before.1) as f64,
        });
        Ok(())
    })?;
    counted.ok_or_else(|| BenchError::failed("the volume was served without its client"))
}

/// Numbers of member reads and of member writes so far, over all members.
fn requests(control: &mut Client) -> Result<(u64, u64), BenchError> {
    let response = control.command(Command::Status).map_err(BenchError::failed)?;
    let volume = response.status.and_then(|mut status| status.volumes.pop());
    let members = volume.ok_or_else(|| BenchError::failed("status: no volume"))?.members;
    let sum = |of: fn(&MemberStatus) -> u64| members.iter().map(of).sum();
    Ok((sum(|member| member.reads), sum(|member| member.writes)))
}

/// Writes all blocks of a load, with [`DEPTH`] requests in flight, or twice as many if they are
/// random. Returns the number of bytes written.
fn write(client: &mut NbdClient, load: Load) -> Result<u64, BenchError> {
    let len = if load == Load::Sequential { 64 << 10 } else { 4096 };
    let depth = if load == Load::Random { 2 * DEPTH } else { DEPTH };
    let data = vec![0x77; len];
    let len = len as u64;
    let places = places(load, client.size() / len);
    let mut flight: VecDeque<u64> = VecDeque::new();
    for place in &places {
        if flight.len() == depth {
            land(client, &mut flight)?;
        }
        flight.push_back(client.write(place * len, &data).map_err(BenchError::Failed)?);
    }
    while !flight.is_empty() {
        land(client, &mut flight)?;
    }
    Ok(places.len() as u64 * len)
}

/// Offsets of the requests of a load, in units of the request length, for a volume of `units`
/// units.
fn places(load: Load, units: u64) -> Vec<u64> {
    let mut rng = Rng::new(1);
    match load {
        Load::Sequential => (0..2048).collect(),
        // Two jobs alternate, as fio's did for kernel md. Each job writes every block of its own 8
        // MiB once, in random order; the two areas begin 64 MiB apart.
        Load::Random => {
            let blocks = (8 << 20) / 4096;
            let mut jobs = [0, (64 << 20) / 4096].map(|first| {
                let mut order: Vec<u64> = (first..first + blocks).collect();
                rng.shuffle(&mut order);
                order.into_iter()
            });
            let mut places = Vec::new();
            while let [Some(first), Some(second)] = jobs.each_mut().map(Iterator::next) {
                places.extend([first, second]);
            }
            places
        }
        Load::Mixed => (0..16_384u64)
            .map(|number| if number.is_multiple_of(4) { rng.below(units) } else { number % units })
            .collect(),
    }
}

/// Waits for the answer to one write, and removes its cookie from `flight`.
fn land(client: &mut NbdClient, flight: &mut VecDeque<u64>) -> Result<(), BenchError> {
    let answer = client.answer().map_err(BenchError::Failed)?;
    answer.result.map_err(|error| BenchError::failed(format!("a write: {error}")))?;
    flight.retain(|cookie| *cookie != answer.cookie);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_units::Bytes;

    #[test]
    fn kernel_counts_are_there_for_each_case_that_names_them() {
        assert_eq!(kernel("64kwrite-qd64").unwrap(), (581.0, 4221.0));
        assert!(kernel("4kwrite").is_err());
    }

    #[test]
    fn random_writes_go_to_every_block_of_two_windows_once() {
        let mut found = places(Load::Random, 1 << 20);
        assert!(found.windows(2).any(|pair| pair[0] + 1 != pair[1]));
        found.sort_unstable();
        let expected: Vec<u64> = (0..2048).chain(16_384..16_384 + 2048).collect();
        assert_eq!(found, expected);
        assert!(places(Load::Mixed, 1000).iter().all(|place| *place < 1000));
    }

    #[test]
    fn every_variant_has_the_same_cache() {
        for case in cases(false).unwrap() {
            for (name, knobs) in &case.variants {
                let bytes = match knobs.stripe_cache_bytes {
                    Bytes(0) => u64::from(knobs.stripe_cache_size) * knobs.stripe_size.bytes().0,
                    of_all => of_all.0 / FILES as u64,
                };
                assert!((CACHE_BYTES..CACHE_BYTES * 107 / 100).contains(&bytes), "{name}: {bytes}");
            }
        }
    }
}
