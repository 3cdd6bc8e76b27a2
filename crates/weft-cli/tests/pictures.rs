//! Tests of the pictures in `docs/pictures/`: chunks lie where `weft explain` says, and every
//! picture is on a page, with a text in its place.
//!
//! The picture of layouts is drawn from `weft explain --json` on whole arrays of four members with
//! four chunks each. With `WEFT_DOCS_UPDATE=1` it is written into `docs/pictures/`, for review and
//! commit. Plots of patches are drawn and compared by `interop/reproduce/results.py`.

mod common;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use common::{exits, json};
use serde_json::Value;
use tempfile::tempdir;
use weft_testing::documents::root;

/// Members of each array, and chunks of each member.
const MEMBERS: u64 = 4;
const ROWS: u64 = 4;

/// Bytes of a chunk: the default of `weft create` on files.
const CHUNK: u64 = 512 << 10;

/// A layout of the picture: its level and layout for `weft create`, and its chunks of data.
struct Layout {
    title: &'static str,
    level: &'static str,
    layout: &'static str,
    chunks: u64,
}

const LAYOUTS: [Layout; 12] = [
    Layout { title: "linear", level: "linear", layout: "", chunks: 16 },
    Layout { title: "RAID 0", level: "0", layout: "", chunks: 16 },
    Layout { title: "RAID 1", level: "1", layout: "", chunks: 4 },
    Layout { title: "RAID 4", level: "4", layout: "", chunks: 12 },
    Layout { title: "RAID 5 left-symmetric", level: "5", layout: "ls", chunks: 12 },
    Layout { title: "RAID 5 left-asymmetric", level: "5", layout: "la", chunks: 12 },
    Layout { title: "RAID 5 right-symmetric", level: "5", layout: "rs", chunks: 12 },
    Layout { title: "RAID 5 right-asymmetric", level: "5", layout: "ra", chunks: 12 },
    Layout { title: "RAID 6 left-symmetric", level: "6", layout: "ls", chunks: 8 },
    Layout { title: "RAID 10 near, 2 copies", level: "10", layout: "n2", chunks: 8 },
    Layout { title: "RAID 10 far, 2 copies", level: "10", layout: "f2", chunks: 8 },
    Layout { title: "RAID 10 offset, 2 copies", level: "10", layout: "o2", chunks: 8 },
];

/// Content of one chunk of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cell {
    /// A chunk of the array, and which copy of it this is.
    Data {
        chunk: u64,
        copy: u64,
    },
    P,
    Q,
}

/// Chunks of all members by row and slot.
type Grid = BTreeMap<(u64, u64), Cell>;

/// Creates an array and asks `weft explain` for all of it.
fn explained(dir: &Path, of: &Layout) -> Value {
    let files: Vec<String> =
        (0..MEMBERS).map(|slot| format!("{}{}-{slot}", of.level, of.layout)).collect();
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    let mut words = vec!["create", "--level", of.level, "--raid-devices", "4"];
    if !of.layout.is_empty() {
        words.extend(["--layout", of.layout]);
    }
    // Room for metadata and four chunks of data. Levels with chunks begin at a multiple of 1 MiB.
    let has_chunks = !["linear", "1"].contains(&of.level);
    words.extend(["--member-size", if has_chunks { "4M" } else { "3M" }]);
    exits(dir, 0, &[&words[..], &files].concat());
    let length = (of.chunks * CHUNK).to_string();
    json(dir, &[&["explain", "--json", "0", &length, "--members"], &files[..]].concat())
}

/// The grid of what `weft explain` says. No chunk of a member has two contents.
fn grid(explained: &Value) -> Grid {
    assert_eq!(explained["left_out_bytes"], 0, "{explained}");
    let number = |value: &Value| value.as_u64().unwrap_or_else(|| panic!("{value}: no number"));
    let row = |value: &Value| {
        let byte = number(&value["data_sector"]) * 512;
        assert_eq!(byte % CHUNK, 0, "{value}");
        byte / CHUNK
    };
    let mut grid = Grid::new();
    let mut put = |row: u64, slot: u64, cell: Cell| {
        let before = grid.insert((row, slot), cell);
        assert!(before.is_none_or(|before| before == cell), "{row} {slot}: {before:?}, {cell:?}");
    };
    for piece in explained["pieces"].as_array().unwrap() {
        let copy = piece["copy"].as_u64().unwrap_or(0);
        for step in 0..number(&piece["length"]) / CHUNK {
            let chunk = number(&piece["offset"]) / CHUNK + step;
            put(row(piece) + step, number(&piece["slot"]), Cell::Data { chunk, copy });
        }
    }
    for stripe in explained["stripes"].as_array().into_iter().flatten() {
        for (name, cell) in [("p_slot", Cell::P), ("q_slot", Cell::Q)] {
            if let Some(slot) = stripe[name].as_u64() {
                put(row(stripe), slot, cell);
            }
        }
    }
    grid
}

/// Pixels of a cell, and from one layout to the next.
const CELL: (u64, u64) = (46, 24);
const STEP: (u64, u64) = (206, 154);

/// Adds a layout with its upper left corner at `(x, y)`.
fn draw(svg: &mut String, of: &Layout, grid: &Grid, (x, y): (u64, u64)) {
    let text = |svg: &mut String, kind: &str, (x, y): (u64, u64), words: &str| {
        writeln!(svg, "<text class=\"{kind}\" x=\"{x}\" y=\"{y}\">{words}</text>").unwrap();
    };
    text(svg, "bold", (x, y + 14), of.title);
    let middle = |slot: u64| x + slot * CELL.0 + CELL.0 / 2;
    for slot in 0..MEMBERS {
        text(svg, "soft small middle", (middle(slot), y + 32), &format!("m{slot}"));
    }
    for ((row, slot), cell) in grid {
        let (kind, letters, words) = match cell {
            Cell::Data { chunk, copy: 0 } => ("box", "middle", chunk.to_string()),
            Cell::Data { chunk, .. } => ("f1", "on middle", chunk.to_string()),
            Cell::P => ("f2", "on middle", "P".to_owned()),
            Cell::Q => ("f4", "on middle", "Q".to_owned()),
        };
        let (left, top) = (x + slot * CELL.0 + 2, y + 38 + row * CELL.1 + 2);
        let (wide, tall) = (CELL.0 - 4, CELL.1 - 4);
        writeln!(
            svg,
            "<rect class=\"{kind}\" x=\"{left}\" y=\"{top}\" width=\"{wide}\" height=\"{tall}\" rx=\"3\"/>"
        )
        .unwrap();
        text(svg, letters, (middle(*slot), top + 15), &words);
    }
}

/// Adds the meaning of the kinds of cells.
fn legend(svg: &mut String, y: u64) {
    let mut x = 18;
    for (kind, words) in [
        ("box", "chunk of data, by its number in the array"),
        ("f1", "further copy of a chunk"),
        ("f2", "P: parity"),
        ("f4", "Q: second parity"),
    ] {
        writeln!(
            svg,
            "<rect class=\"{kind}\" x=\"{x}\" y=\"{}\" width=\"22\" height=\"14\" rx=\"3\"/>\n\
             <text class=\"small\" x=\"{}\" y=\"{y}\">{words}</text>",
            y - 11,
            x + 29
        )
        .unwrap();
        x += 52 + words.len() as u64 * 13 / 2;
    }
}

/// The whole picture.
fn picture(grids: &[Grid]) -> String {
    let style = std::fs::read_to_string(pictures().join("style.css")).unwrap();
    let (wide, tall) = (4 * STEP.0 + 16, 3 * STEP.1 + 44);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {wide} {tall}\" width=\"{wide}\" \
         height=\"{tall}\" role=\"img\" aria-labelledby=\"title about\">\n\
         <title id=\"title\">Where chunks lie on four members</title>\n\
         <desc id=\"about\">Written from weft explain --json by crates/weft-cli/tests/pictures.rs</desc>\n\
         <style>\n{style}.middle {{ text-anchor: middle; }}\n</style>\n\
         <rect class=\"page\" x=\"0.5\" y=\"0.5\" width=\"{}\" height=\"{}\" rx=\"6\"/>\n",
        wide - 1,
        tall - 1
    );
    for (at, (of, grid)) in (0u64..).zip(LAYOUTS.iter().zip(grids)) {
        draw(&mut svg, of, grid, (16 + at % 4 * STEP.0, 12 + at / 4 * STEP.1));
    }
    legend(&mut svg, tall - 16);
    svg + "</svg>\n"
}

fn pictures() -> PathBuf {
    root().join("docs/pictures")
}

#[test]
fn chunks_of_the_picture_lie_where_explain_says() {
    let dir = tempdir().unwrap();
    let all: Vec<Value> = LAYOUTS.iter().map(|of| explained(dir.path(), of)).collect();
    let grids: Vec<Grid> = all.iter().map(grid).collect();
    for (of, grid) in LAYOUTS.iter().zip(&grids) {
        assert_eq!(grid.len() as u64, MEMBERS * ROWS, "{}: {grid:?}", of.title);
    }
    let (path, wanted) = (pictures().join("layouts.svg"), picture(&grids));
    if std::env::var("WEFT_DOCS_UPDATE").is_ok_and(|value| value == "1") {
        std::fs::write(&path, &wanted).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    let hint = "WEFT_DOCS_UPDATE=1 cargo test -p weft-cli --test pictures draws it";
    assert!(found == wanted, "{}: other places than explain's; {hint}", path.display());
    // Planted: parity of RAID 4 at another slot, with the data that explain has there.
    let mut other = all[3].clone();
    other["stripes"][0]["p_slot"] = 0.into();
    let told = std::panic::catch_unwind(|| grid(&other)).unwrap_err();
    assert!(told.downcast_ref::<String>().is_some_and(|told| told.contains("Data")), "{told:?}");
}

/// Names of pictures that a page shows, each with the text in its place.
fn shown(page: &str) -> Vec<(String, String)> {
    let images = page.split("![").skip(1).filter_map(|rest| rest.split_once("]("));
    let names = images.filter_map(|(text, rest)| Some((rest.split_once(')')?.0, text)));
    names.map(|(path, text)| (path.rsplit('/').next().unwrap().to_owned(), text.into())).collect()
}

#[test]
fn every_picture_is_on_a_page_with_a_text_and_has_its_own_background() {
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let docs = std::fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let roots = ["README.md", "ARCHITECTURE.md"].map(|name| root().join(name));
    for path in docs.chain(roots).filter(|path| path.extension().is_some_and(|it| it == "md")) {
        for (name, text) in shown(&std::fs::read_to_string(&path).unwrap()) {
            texts.entry(name).or_default().push(text);
        }
    }
    let style = std::fs::read_to_string(pictures().join("style.css")).unwrap();
    let mut count = 0;
    for path in std::fs::read_dir(pictures()).unwrap().map(|entry| entry.unwrap().path()) {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.extension().is_none_or(|it| it != "svg") {
            continue;
        }
        count += 1;
        let svg = std::fs::read_to_string(&path).unwrap();
        assert!(svg.contains(&style) && svg.contains("<rect class=\"page\""), "{name}: no style");
        assert!(
            svg.contains("<title id=\"title\">") && svg.len() < 40_000,
            "{name}: {}",
            svg.len()
        );
        let texts = texts.remove(&name).unwrap_or_default();
        assert!(!texts.is_empty(), "{name}: on no page");
        assert!(texts.iter().all(|text| text.len() >= 40), "{name}: {texts:?}");
    }
    assert!(count >= 8, "{count} pictures");
    assert!(texts.is_empty(), "pages show what docs/pictures/ does not have: {texts:?}");
    assert_eq!(shown("a ![b c](d/e.svg) f"), [("e.svg".to_owned(), "b c".to_owned())]);
}
