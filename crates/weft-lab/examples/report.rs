//! Prints a page with one of everything, made of invented numbers, to be looked at in a browser:
//! `cargo run -p weft-lab --example report >page.html`.

use weft_lab::report::{
    Axis, Bars, Block, Cell, Group, Lines, Mark, Report, Section, Series, Table, Value,
};
use weft_lab::statistics::Verdict;

fn value(value: f64, apart: f64) -> Value {
    Value { value, interval: Some((value - apart, value + apart)) }
}

fn main() {
    let text = |text: &str| Block::Text(text.to_owned());
    let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let group = |label: &str, published, measured, apart, beyond: Option<f64>, band| Group {
        label: label.to_owned(),
        values: vec![
            Some(Value::exact(published)),
            Some(value(measured, apart)),
            beyond.map(|beyond| value(beyond, apart)),
        ],
        band: Some(band),
        runs: vec![vec![], [-0.6, 0.1, 0.5].map(|part| measured + part * apart).to_vec()],
    };
    let bars = Bars {
        title: "Throughput, patched over baseline".to_owned(),
        description: "Both measured ratios lie in their bands; without the patch the ratio is 1."
            .to_owned(),
        unit: "patched / baseline".to_owned(),
        series: owned(&["published", "measured", "beyond"]),
        reference: Some(1.0),
        groups: vec![
            group("dd, stripe_cache_size=256", 1.33, 1.32, 0.04, Some(1.47), (1.15, 1.55)),
            group("dd, stripe_cache_size=512", 1.25, 1.19, 0.12, None, (1.10, 1.45)),
            group("tiobench, threshold 0", 1.37, 1.07, 0.03, Some(1.4), (1.15, 1.60)),
        ],
    };
    let series = |name: &str, factor: f64| Series {
        name: name.to_owned(),
        points: (0..7)
            .map(|at| {
                let size = f64::from(4 << at);
                (size, value(40_000.0 * factor / (size / 4.0 + 2.0), 900.0 * factor))
            })
            .collect(),
    };
    let sizes = Lines {
        title: "Writes per second by block size".to_owned(),
        description: "Small stripes win below 64 KiB.".to_owned(),
        across: "block size in KiB".to_owned(),
        up: "writes per second".to_owned(),
        axis: Axis::Doubling,
        logarithmic: false,
        baseline: false,
        marks: vec![Mark { value: 11_000.0, label: "published: 11 000".to_owned() }],
        series: vec![series("64K", 0.4), series("4K", 1.0), series("auto", 1.05)],
    };
    let waits = |name: &str, values: [f64; 4]| Series {
        name: name.to_owned(),
        points: (0..4u8).map(|at| (f64::from(at), Value::exact(values[usize::from(at)]))).collect(),
    };
    let latency = Lines {
        title: "99.9th percentile of the wait for a preread".to_owned(),
        description: String::new(),
        across: "variant".to_owned(),
        up: "milliseconds".to_owned(),
        axis: Axis::Names(owned(&["fifo", "threshold 1", "threshold 0", "weft"])),
        logarithmic: true,
        baseline: false,
        marks: Vec::new(),
        series: vec![
            waits("cache 256", [12.0, 90.0, 2400.0, 31.0]),
            waits("cache 512", [14.0, 70.0, 900.0, 25.0]),
        ],
    };
    let row = |name: &str, published: &str, measured: &str, verdict| {
        let number = |text: &str| Cell::Number(text.to_owned());
        vec![
            Cell::Text(name.to_owned()),
            number(published),
            number(measured),
            Cell::Verdict(verdict),
            Cell::Text(
                if verdict == Verdict::Agrees { "" } else { "the array is bound by its disks" }
                    .to_owned(),
            ),
        ]
    };
    let table = Table {
        caption: "Rows".to_owned(),
        columns: owned(&["case", "published", "measured [95 %]", "verdict", "reason"]),
        rows: vec![
            row("dd, cache 256", "+33 %", "+32.4 % [31.0, 33.7]", Verdict::Agrees),
            row("dd, cache 512", "+25 %", "+19 % [7.0, 31.0]", Verdict::Direction),
            row("tiobench, threshold 0", "+37 %", "+7 % [4.0, 10.0]", Verdict::Differs),
        ],
    };
    let sections = vec![
        Section {
            title: "What came out".to_owned(),
            blocks: vec![
                text(
                    "Published figures beside what weft measured with the same change on and off.",
                ),
                Block::Bars(bars),
                Block::Table(table),
            ],
        },
        Section {
            title: "Why".to_owned(),
            blocks: vec![
                text("The hold list keeps stripes that a stream will fill."),
                Block::Lines(sizes),
                Block::Lines(latency),
            ],
        },
        Section {
            title: "Assumptions".to_owned(),
            blocks: vec![Block::List(owned(&[
                "The disks are not named; a 7200 rpm model of 2008 is used.",
                "Only the flusher writes back.",
            ]))],
        },
    ];
    let report = Report {
        title: "A sample page of weft-lab".to_owned(),
        summary: "Invented numbers, to look at how a page looks.".to_owned(),
        facts: vec![
            ("seed".to_owned(), "0x77656674".to_owned()),
            ("runs".to_owned(), "10 pairs".to_owned()),
            (
                "experiments/000.toml".to_owned(),
                "sha256 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
                    .to_owned(),
            ),
        ],
        sections,
    };
    print!("{}", report.html());
}
