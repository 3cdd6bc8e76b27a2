//! Tests of a machine of disks without an array: volumes, the link that they share, and tokens.

use weft_engine::knobs::Knobs;
use weft_engine::page_cache::{Amount, Balance, InodeId, Kernel, PAGE_BYTES, PoolConfig};
use weft_engine::{Flags, RequestOp};
use weft_sim::drive::Drive;
use weft_sim::machine::{
    Host, Machine, MachineParts, PageAllocator, PageCacheParts, Pid, Process, Woken,
};
use weft_units::{ByteRange, Bytes, Span, Time, VolumeId};

/// Disks of 100 MB/s that answer when the data is on the platter.
fn disks(members: u16, knobs: Knobs) -> Machine {
    let raid5 = MachineParts::raid5("hdd-2011-reduced", Bytes::kib(512), knobs);
    let model = Drive::model("hdd-2011-reduced").unwrap().with("rate_mb_s = 100").unwrap();
    Machine::of_disks(&MachineParts { model, members, ..raid5 })
}

/// A process that writes one request of half a MB after the other to a volume.
#[derive(Debug)]
struct Stream {
    pid: Pid,
    volume: VolumeId,
    at: u64,
    count: u64,
}

const REQUEST: u64 = 500_224;

impl Process for Stream {
    fn run(&mut self, host: &mut Host, _: Woken) {
        if self.at < self.count {
            let range = ByteRange::new(self.at * REQUEST, REQUEST);
            host.submit_to_volume(self.volume, self.pid, 0, RequestOp::Write, range, Flags::NONE);
        }
        self.at += 1;
    }

    fn is_done(&self) -> bool {
        self.at > self.count
    }
}

/// Runs streams of this many requests, one on each disk. Returns the machine when all have ended.
fn streams(counts: &[u64], link: Option<Bytes>) -> Machine {
    let members = u16::try_from(counts.len()).unwrap();
    let mut machine = disks(members, Knobs::md());
    if let Some(link) = link {
        machine.host.share_link(link);
    }
    for (count, volume) in counts.iter().copied().zip(0..) {
        let volume = VolumeId(volume);
        machine.add_with(|pid| Box::new(Stream { pid, volume, at: 0, count }));
    }
    machine.run(Time(0) + Span::secs(60));
    machine
}

#[test]
fn each_disk_is_a_volume_with_requests_and_idle_time_of_its_own() {
    let machine = streams(&[100, 40, 0], None);
    let host = &machine.host;
    let traffic = host.traffic().map(|traffic| (traffic.writes, traffic.jumps));
    assert_eq!(traffic.collect::<Vec<_>>(), [(100, 0), (40, 0), (0, 0)]);
    let idle = [0, 1, 2].map(|volume| host.idle(VolumeId(volume), host.now()).0 / 1_000_000);
    // A request takes 5 ms.
    let all = host.now().0 / 1_000_000;
    assert!((500..520).contains(&all), "{all} ms");
    assert_eq!((idle[0], idle[2]), (0, all));
    assert!((300..310).contains(&idle[1]), "{idle:?} ms");
}

#[test]
fn disks_behind_a_link_get_its_rate_together() {
    let millis = |link| streams(&[100, 100], link).host.now().0 / 1_000_000;
    let fast = millis(None);
    assert!((500..520).contains(&fast), "{fast} ms");
    // 100 MB pass the link, and the last request goes on to its disk.
    let linked = millis(Some(Bytes(100_000_000)));
    assert!((1000..1030).contains(&linked), "{linked} ms");
    let wide = millis(Some(Bytes(100_000_000_000)));
    assert!((500..520).contains(&wide), "{wide} ms");
}

/// A process that dirties 4,096 pages at once.
#[derive(Debug)]
struct Burst(Pid, VolumeId);

impl Process for Burst {
    fn run(&mut self, host: &mut Host, woken: Woken) {
        if woken != Woken::Started {
            return;
        }
        let (writer, inode) = (host.add_writer(self.0, 0), host.add_file_on(self.1));
        let mut page = 0;
        while page < 4096 {
            let written = host.write_pages(writer, inode, page..4096);
            page += written.pages;
            if written.balance {
                assert_eq!(host.balance(writer), Balance::Continue, "below the limit");
            }
        }
    }

    fn is_done(&self) -> bool {
        false
    }
}

/// Pages in runs of 64 KiB that do not touch.
#[derive(Debug)]
struct Scattered;

impl PageAllocator for Scattered {
    fn place(&mut self, _: InodeId, page: u64, count: u64) -> (Bytes, u64) {
        let (run, within) = (page / 16, page % 16);
        (Bytes((run * 32 + within) * PAGE_BYTES), count.min(16 - within))
    }
}

/// Largest number of requests that the flusher of the second of two disks has outstanding at once,
/// with queues of eight requests.
fn outstanding_max(sleeps_for_token: bool) -> usize {
    let mut machine = disks(2, Knobs { nr_requests: 8, ..Knobs::md() });
    let pool = PoolConfig {
        dirty: Amount::Bytes(1 << 30),
        background: Amount::Bytes(1 << 20),
        ..PoolConfig::new(Kernel::V3_1, 1, 1 << 20, 1 << 20)
    };
    machine.add_page_cache_of(PageCacheParts {
        pool,
        places: Box::new(Scattered),
        bio: Bytes::kib(64),
        page: Span::ZERO,
        sleeps_for_token,
    });
    machine.add_with(|pid| Box::new(Burst(pid, VolumeId(1))));
    machine.host.watch_requests();
    machine.run(Time(0) + Span::secs(60));
    assert_eq!(machine.host.written_pages(), 4096);
    let writes = machine.host.traffic().map(|traffic| traffic.writes);
    assert_eq!(writes.collect::<Vec<_>>(), [0, 256]);
    let seen = machine.host.watched();
    let at =
        |time: Time| seen.iter().filter(move |one| one.at <= time && Some(time) < one.answered);
    seen.iter().map(|one| at(one.at).count()).max().unwrap()
}

#[test]
fn a_flusher_sleeps_while_its_disk_has_no_token_left() {
    // The flusher submits one request more than there are tokens, and sleeps until this request has
    // a token.
    assert_eq!(outstanding_max(true), 9);
    // Counterpart: without `sleeps_for_token` the flusher submits all requests at once.
    assert_eq!(outstanding_max(false), 256);
}
