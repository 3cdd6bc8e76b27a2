//! Runner of the grid: `cargo xtask grid`.
//!
//! A line of the grid is one job on one array, with weft's settings and with md's. The example
//! prints the lines in which weft loses, worst first, then the geometric means with default
//! settings and with equal chunk sizes, and the history of the bounds. It fails if a line loses
//! more than the bounds of `experiments/grid.toml` allow without being listed there, loses more
//! than listed, or is listed and no longer loses. With `--chunks` it prints the effect of other
//! chunk sizes, and never fails.

use std::process::ExitCode;

use weft_lab::grid::{Change, Found, Grid, Loss, Means, OfChunk, Setting};
use weft_lab::simulate::Figures;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let few = words.iter().any(|word| word == "--few");
    let all = words.iter().any(|word| word == "--all");
    let only: Vec<&str> =
        words.iter().map(String::as_str).filter(|word| !word.starts_with("--")).collect();
    let chunks = words.iter().any(|word| word == "--chunks");
    let only = only.join(" ");
    let grid = if chunks { Grid::of_chunks(&only, few) } else { Grid::new(&only, few) };
    let grid = match grid {
        Ok(grid) => grid,
        Err(error) => return failed(&error),
    };
    let progress = |done: usize, of: usize| {
        if done.is_multiple_of(50) || done == of {
            eprintln!("{done} of {of} runs");
        }
    };
    match grid.run(&progress) {
        Ok(found) if chunks => print_chunks(&found),
        Ok(found) => print(&found, &grid, all, only.is_empty() && !few),
        Err(error) => failed(&error),
    }
}

fn failed(error: &dyn std::fmt::Display) -> ExitCode {
    eprintln!("grid: {error}");
    ExitCode::from(2)
}

/// Prints, by chunk size: the geometric means and the number of jobs that lose, the means on each
/// array, and the jobs that become slowest and fastest.
fn print_chunks(found: &Found) -> ExitCode {
    let chunks = found.chunks();
    let mut arrays: Vec<&str> = found.lines.iter().map(|line| line.array.as_str()).collect();
    arrays.dedup();
    let first = format!("{}K", chunks[0].kib);
    println!("geometric means, and jobs of {} that lose beyond the bound", found.lines.len());
    println!("{:>6} {:>9} {:>7} {:>9} {:>9}", "chunk", "mean", "mean", "lose", "lose");
    println!("{:>6} {first:>9} {:>7} {first:>9} {:>9}", "beside", "md", "md");
    for of in &chunks {
        let OfChunk { kib, to_md, lose_to_first, lose_to_md, .. } = of;
        let to_first = of.to_first(None);
        println!("{kib:>5}K {to_first:>9.3} {to_md:>7.3} {lose_to_first:>9} {lose_to_md:>9}");
    }
    for array in arrays {
        let means: Vec<String> = chunks
            .iter()
            .map(|it| format!("{}K {:.3}", it.kib, it.to_first(Some(array))))
            .collect();
        println!("{array}: {}", means.join(", "));
    }
    for of in &chunks[1..] {
        println!("\n{}K, worst and best:", of.kib);
        let (worst, best) = (of.ratios.iter().take(SHOWN), of.ratios.iter().rev().take(SHOWN));
        for (ratio, line) in worst.chain(best) {
            println!("{ratio:>7.2}  {} | {}", line.array, line.load);
        }
    }
    ExitCode::SUCCESS
}

/// Number of the slowest and of the fastest jobs that are shown for a chunk size.
const SHOWN: usize = 12;

fn print(found: &Found, grid: &Grid, all: bool, whole: bool) -> ExitCode {
    let losses = found.losses();
    println!(
        "{:>7} {:>9} {:>9} {:>9} {:>9} {:>9}  job",
        "weft/md", "weft MB/s", "md MB/s", "p99 ms", "md's", "longest"
    );
    let row = |line: &weft_lab::grid::Line, why: &str| {
        let nothing = Figures {
            rate: 0.0,
            p99: weft_units::Span::ZERO,
            longest: weft_units::Span::ZERO,
            requests: 0,
        };
        let [weft, md] = [Setting::Weft, Setting::Md].map(|it| line.under(it).unwrap_or(nothing));
        let ms = |span: weft_units::Span| span.0 as f64 / 1e6;
        println!(
            "{:>7.2} {:>9.1} {:>9.1} {:>9.2} {:>9.2} {:>9.1}  {} | {}{why}",
            line.to_md(),
            weft.rate,
            md.rate,
            ms(weft.p99),
            ms(md.p99),
            ms(weft.longest),
            line.array,
            line.load
        );
    };
    if all {
        found.lines.iter().for_each(|line| row(line, ""));
        println!();
    }
    for (line, losses) in &losses {
        let words: Vec<&str> = losses
            .iter()
            .map(|loss| match loss {
                Loss::Rate(_) => "rate",
                Loss::P99(_) => "p99",
                Loss::Wait(_) => "wait",
            })
            .collect();
        let known = match found.known(line) {
            Some(_) if found.loses_as_known(line) => "known".to_owned(),
            Some(open) => format!("WORSE than known, {:.2}", open.to_md),
            None => "NEW".to_owned(),
        };
        row(line, &format!(" [{}: {known}]", words.join(", ")));
    }
    let mended = found.mended();
    for open in &mended {
        let (array, load) = (&open.array, &open.load);
        println!("mended, to be taken off experiments/grid.toml: {array} | {load}");
    }
    print_means(found, grid, losses.len(), whole);
    let Means { to_md, to_fixed, .. } = found.means();
    let means = to_md >= grid.bound.mean_to_md && to_fixed >= grid.bound.mean_to_fixed;
    let met = losses.iter().all(|(line, _)| found.loses_as_known(line)) && mended.is_empty();
    if met && (means || !whole) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Prints the number of losses, the geometric means, and the history of their bounds.
fn print_means(found: &Found, grid: &Grid, lose: usize, whole: bool) {
    let Means { to_md, to_fixed, equal_chunks: (equal, count) } = found.means();
    let (jobs, goal) = (found.lines.len(), grid.bound.goal_mean_to_md);
    println!("{lose} of {jobs} jobs lose");
    println!("geometric mean to md, by defaults: {to_md:.3} of {jobs} jobs (goal {goal})");
    println!("geometric mean to md, with equal chunks: {equal:.3} of {count} jobs");
    if whole {
        println!("geometric mean to md's best size of stripes, by defaults: {to_fixed:.3}");
    }
    println!("bounds of the means by defaults, to md and to its best size, since:");
    for Change { date, commit, mean_to_md, mean_to_fixed, what, found } in &grid.history {
        println!("  {date} {commit}  {mean_to_md} {mean_to_fixed}  {what}; found: {found}");
    }
}
