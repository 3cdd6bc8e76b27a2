//! A disk as its front end sets it up: features, memory, rings.
//!
//! The front end is the program that runs the virtual machine. Its messages are parsed by the crate
//! `vhost`; none is handled while a request is in flight, so memory and rings change only at rest.
//! An invalid message ends the connection.
//!
//! The memory is mapped. If a front end shortens the file of its memory, an access to the lost part
//! is a fault that ends this process; QEMU seals the file of `memory-backend-memfd` against that.

use std::fs::File;

use rustix::fs::OFlags;
use vhost::VhostUserMemoryRegionBase;
use vhost::vhost_user::message::{
    VhostTransferStateDirection, VhostTransferStatePhase, VhostUserConfigFlags, VhostUserInflight,
    VhostUserLog, VhostUserMemoryRegion, VhostUserProtocolFeatures, VhostUserShMemConfig,
    VhostUserSharedMsg, VhostUserSingleMemoryRegion, VhostUserVirtioFeatures,
    VhostUserVringAddrFlags, VhostUserVringState,
};
use vhost::vhost_user::{Error, GpuBackend, Result, VhostUserBackendReqHandlerMut};
use virtio_bindings::virtio_blk::VIRTIO_BLK_F_FLUSH;
use virtio_bindings::virtio_config::VIRTIO_F_VERSION_1;
use virtio_bindings::virtio_ring::{VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC};
use virtio_queue::QueueT;
use vm_memory::{FileOffset, GuestAddress};

use super::block::{Disk, HEADER_BYTES, Status};
use super::inflight::Inflight;
use super::ring::{ENTRIES_MAX, Memory, Ring};
use super::{Chained, Head};

/// The disk of a connected front end.
#[derive(Debug)]
pub(super) struct Device {
    disk: Disk,
    /// Features that the driver has accepted.
    features: u64,
    memory: Option<Memory>,
    /// Memory regions of the front end: its virtual address, length in bytes, and guest physical
    /// address.
    regions: Vec<(u64, u64, u64)>,
    rings: Vec<Ring>,
    inflight: Option<Inflight>,
    /// Descriptors of rings that no longer have to be watched.
    unwatched: Vec<File>,
    /// Rings with descriptors that are not watched yet.
    unseen: Vec<u16>,
}

impl Device {
    pub(super) fn new(disk: Disk) -> Self {
        Self {
            disk,
            features: 0,
            memory: None,
            regions: Vec::new(),
            rings: (0..QUEUES).map(Ring::new).collect(),
            inflight: None,
            unwatched: Vec::new(),
            unseen: Vec::new(),
        }
    }

    /// Takes all chains that the driver has made available. `into` gets the request of each.
    pub(super) fn take(&mut self, mut into: impl FnMut(Chained)) {
        let Self { disk, features, memory: Some(memory), rings, inflight, .. } = self else {
            return;
        };
        let write_through = *features & 1 << VIRTIO_BLK_F_FLUSH == 0;
        for (ring, number) in rings.iter_mut().zip(0..) {
            while let Some(head) = ring.take(memory, inflight.as_ref()) {
                let chain = ring.chain(head).expect("taken just now");
                let verb = disk.verb(memory, chain, write_through);
                into(Chained { head: Head { ring: number, head }, verb });
            }
        }
    }

    /// Copies data from a chain, from byte `at` of the data on. `None` if the chain is shorter.
    pub(super) fn read(&self, Head { ring, head }: Head, at: u64, bytes: &mut [u8]) -> Option<()> {
        let chain = self.rings[usize::from(ring)].chain(head)?;
        chain.read(self.memory.as_ref()?, HEADER_BYTES as u64 + at, bytes)
    }

    /// Copies data into a chain, from byte `at` of the data on. `None` if the chain has no room for
    /// it.
    pub(super) fn write(&self, Head { ring, head }: Head, at: u64, bytes: &[u8]) -> Option<()> {
        let chain = self.rings[usize::from(ring)].chain(head)?;
        let end = at.checked_add(bytes.len() as u64)?;
        (end <= chain.data_len(true)).then(|| chain.write(self.memory.as_ref()?, at, bytes))?
    }

    /// Answers a chain with the disk's serial number, cut to the room that the chain has.
    pub(super) fn identify(&mut self, at: Head) {
        let room = self.rings[usize::from(at.ring)].chain(at.head).map(|it| it.data_len(true));
        let room = usize::try_from(room.unwrap_or(0)).unwrap_or(usize::MAX);
        let id = self.disk.id();
        let id = id[..id.len().min(room)].to_vec();
        match self.write(at, 0, &id) {
            Some(()) => self.answer(at, Status::Ok, id.len() as u64),
            None => self.answer(at, Status::Error, 0),
        }
    }

    /// Answers a chain, into which `len` bytes of data were written.
    pub(super) fn answer(&mut self, Head { ring, head }: Head, status: Status, len: u64) {
        let Self { memory: Some(memory), rings, inflight, .. } = self else { return };
        rings[usize::from(ring)].answer(memory, inflight.as_ref(), (head, status, len));
    }

    /// Notifies the driver of new answers.
    pub(super) fn signal(&mut self) {
        let Self { memory: Some(memory), rings, .. } = self else { return };
        rings.iter_mut().for_each(|ring| ring.signal(memory));
    }

    /// Takes the descriptors of rings that no longer have to be watched.
    pub(super) fn take_unwatched(&mut self) -> Vec<File> {
        std::mem::take(&mut self.unwatched)
    }

    /// Takes the rings that are not watched yet, each with its descriptor.
    pub(super) fn take_unseen(&mut self) -> Vec<(u16, &File)> {
        let unseen = std::mem::take(&mut self.unseen);
        let kick = |ring: u16| Some((ring, self.rings[usize::from(ring)].kick.as_ref()?));
        unseen.into_iter().filter_map(kick).collect()
    }

    fn ring(&mut self, index: u32) -> Result<&mut Ring> {
        let ring = usize::try_from(index).ok().and_then(|index| self.rings.get_mut(index));
        ring.ok_or(Error::InvalidParam)
    }

    fn stop(&mut self, index: u32) -> Result<()> {
        let kick = self.ring(index)?.stop();
        self.unwatched.extend(kick);
        Ok(())
    }

    /// Stops all rings. No request may be in flight.
    pub(super) fn stop_all(&mut self) {
        for ring in 0..u32::from(QUEUES) {
            self.stop(ring).expect("it exists");
        }
    }

    /// Guest physical address for an address `user` in the front end's memory; an error if no
    /// region contains the address.
    fn translated(&self, user: u64) -> Result<GuestAddress> {
        let place = self.regions.iter().find_map(|(start, len, guest)| {
            let offset = user.checked_sub(*start).filter(|offset| offset < len)?;
            guest.checked_add(offset)
        });
        place.map(GuestAddress).ok_or(Error::InvalidParam)
    }
}

impl VhostUserBackendReqHandlerMut for Device {
    fn set_owner(&mut self) -> Result<()> {
        Ok(())
    }

    fn reset_owner(&mut self) -> Result<()> {
        self.reset_device()
    }

    fn reset_device(&mut self) -> Result<()> {
        self.stop_all();
        self.features = 0;
        Ok(())
    }

    fn get_features(&mut self) -> Result<u64> {
        let ring = [VIRTIO_F_VERSION_1, VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC];
        let ring = ring.into_iter().fold(0, |bits, feature| bits | 1 << feature);
        let protocol = VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits();
        Ok(self.disk.features() | ring | protocol)
    }

    fn set_features(&mut self, features: u64) -> Result<()> {
        if features & !self.get_features()? != 0 {
            return Err(Error::FeatureMismatch);
        }
        self.features = features;
        // With protocol features, the front end enables each ring by a message; without them, every
        // ring is enabled.
        if features & VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits() == 0 {
            self.rings.iter_mut().for_each(|ring| ring.is_enabled = true);
        }
        Ok(())
    }

    fn set_mem_table(
        &mut self,
        regions: &[VhostUserMemoryRegion],
        files: Vec<File>,
        _: Option<bool>,
    ) -> Result<Option<Vec<VhostUserMemoryRegionBase>>> {
        let mut ranges = Vec::with_capacity(regions.len());
        for (region, file) in regions.iter().zip(files) {
            let (bytes, offset) = (region.memory_size, region.mmap_offset);
            let end = offset.checked_add(bytes).ok_or(Error::InvalidParam)?;
            if end > file.metadata().map_err(Error::ReqHandlerError)?.len() {
                return Err(Error::InvalidParam);
            }
            let len = usize::try_from(bytes).map_err(|_| Error::InvalidParam)?;
            let place = Some(FileOffset::new(file, offset));
            ranges.push((GuestAddress(region.guest_phys_addr), len, place));
        }
        ranges.sort_by_key(|(guest, _, _)| *guest);
        let memory = Memory::from_ranges_with_files(ranges);
        self.memory =
            Some(memory.map_err(|error| {
                Error::ReqHandlerError(std::io::Error::other(error.to_string()))
            })?);
        let place = |region: &VhostUserMemoryRegion| {
            (region.user_addr, region.memory_size, region.guest_phys_addr)
        };
        self.regions = regions.iter().map(place).collect();
        Ok(None)
    }

    fn set_vring_num(&mut self, index: u32, num: u32) -> Result<()> {
        let ring = self.ring(index)?;
        let num = u16::try_from(num).map_err(|_| Error::InvalidParam)?;
        if num == 0 || ring.kick.is_some() {
            return Err(Error::InvalidParam);
        }
        ring.queue.try_set_size(num).map_err(|_| Error::InvalidParam)
    }

    fn set_vring_addr(
        &mut self,
        index: u32,
        _: VhostUserVringAddrFlags,
        descriptor: u64,
        used: u64,
        available: u64,
        _: u64,
    ) -> Result<()> {
        let places = [descriptor, available, used].map(|user| self.translated(user));
        let [descriptor, available, used] = places;
        let (descriptor, available, used) = (descriptor?, available?, used?);
        let queue = &mut self.ring(index)?.queue;
        let set = |result: std::result::Result<(), virtio_queue::Error>| {
            result.map_err(|_| Error::InvalidParam)
        };
        set(queue.try_set_desc_table_address(descriptor))?;
        set(queue.try_set_avail_ring_address(available))?;
        set(queue.try_set_used_ring_address(used))
    }

    fn set_vring_base(&mut self, index: u32, base: u32) -> Result<()> {
        let base = u16::try_from(base).map_err(|_| Error::InvalidParam)?;
        self.ring(index)?.queue.set_next_avail(base);
        Ok(())
    }

    fn get_vring_base(&mut self, index: u32) -> Result<VhostUserVringState> {
        self.stop(index)?;
        let base = self.ring(index)?.queue.next_avail();
        Ok(VhostUserVringState::new(index, base.into()))
    }

    fn set_vring_kick(&mut self, index: u8, fd: Option<File>) -> Result<()> {
        // Without a descriptor the ring would have to be polled.
        let kick = fd.ok_or(Error::InvalidParam)?;
        let index = u32::from(index);
        self.stop(index)?;
        let event_idx = self.features & 1 << VIRTIO_RING_F_EVENT_IDX != 0;
        let Self { memory: Some(memory), rings, inflight, .. } = self else {
            return Err(Error::InvalidParam);
        };
        let ring = rings.get_mut(index as usize).ok_or(Error::InvalidParam)?;
        ring.start(memory, inflight.as_ref(), event_idx).map_err(|why| {
            Error::ReqHandlerError(std::io::Error::other(format!("queue {index}: {why}")))
        })?;
        ring.kick = Some(kick);
        self.unseen.push(u16::try_from(index).expect("from a u8"));
        Ok(())
    }

    fn set_vring_call(&mut self, index: u8, fd: Option<File>) -> Result<()> {
        fd.as_ref().map_or(Ok(()), does_not_wait)?;
        self.ring(index.into())?.call = fd;
        Ok(())
    }

    fn set_vring_err(&mut self, index: u8, fd: Option<File>) -> Result<()> {
        fd.as_ref().map_or(Ok(()), does_not_wait)?;
        self.ring(index.into())?.err = fd;
        Ok(())
    }

    fn get_protocol_features(&mut self) -> Result<VhostUserProtocolFeatures> {
        Ok(VhostUserProtocolFeatures::MQ
            | VhostUserProtocolFeatures::CONFIG
            | VhostUserProtocolFeatures::INFLIGHT_SHMFD
            | VhostUserProtocolFeatures::RESET_DEVICE)
    }

    fn set_protocol_features(&mut self, _: u64) -> Result<()> {
        Ok(())
    }

    fn get_queue_num(&mut self) -> Result<u64> {
        Ok(QUEUES.into())
    }

    fn set_vring_enable(&mut self, index: u32, enable: bool) -> Result<()> {
        self.ring(index)?.is_enabled = enable;
        Ok(())
    }

    fn get_config(&mut self, offset: u32, size: u32, _: VhostUserConfigFlags) -> Result<Vec<u8>> {
        // Bytes beyond the configuration space belong to features that the disk does not offer, and
        // are zero.
        let config = self.disk.config(QUEUES);
        let at = |place: u32| config.get(place as usize).copied().unwrap_or(0);
        let end = offset.checked_add(size).ok_or(Error::InvalidParam)?;
        Ok((offset..end).map(at).collect())
    }

    fn set_config(&mut self, _: u32, _: &[u8], _: VhostUserConfigFlags) -> Result<()> {
        Err(unsupported("the configuration cannot be written"))
    }

    fn set_gpu_socket(&mut self, _: GpuBackend) -> Result<()> {
        Err(unsupported("a disk has no display"))
    }

    fn get_shared_object(&mut self, _: VhostUserSharedMsg) -> Result<File> {
        Err(unsupported("a disk shares no objects"))
    }

    fn get_inflight_fd(&mut self, told: &VhostUserInflight) -> Result<(VhostUserInflight, File)> {
        let (queues, entries) = (told.num_queues, told.queue_size);
        if queues == 0 || queues > QUEUES || entries == 0 || entries > ENTRIES_MAX {
            return Err(Error::InvalidParam);
        }
        Inflight::create(queues, entries).map_err(Error::ReqHandlerError)
    }

    fn set_inflight_fd(&mut self, told: &VhostUserInflight, file: File) -> Result<()> {
        let inflight = Inflight::map(told, file, ENTRIES_MAX);
        self.inflight = Some(inflight.ok_or(Error::InvalidParam)?);
        Ok(())
    }

    fn get_max_mem_slots(&mut self) -> Result<u64> {
        Err(unsupported("memory is set as a whole"))
    }

    fn add_mem_region(
        &mut self,
        _: &VhostUserSingleMemoryRegion,
        _: File,
        _: Option<bool>,
    ) -> Result<Option<VhostUserMemoryRegionBase>> {
        Err(unsupported("memory is set as a whole"))
    }

    fn remove_mem_region(&mut self, _: &VhostUserSingleMemoryRegion) -> Result<()> {
        Err(unsupported("memory is set as a whole"))
    }

    fn set_device_state_fd(
        &mut self,
        _: VhostTransferStateDirection,
        _: VhostTransferStatePhase,
        _: File,
    ) -> Result<Option<File>> {
        Err(unsupported("a disk has no state to transfer"))
    }

    fn check_device_state(&mut self) -> Result<()> {
        Err(unsupported("a disk has no state to transfer"))
    }

    fn get_shmem_config(&mut self) -> Result<VhostUserShMemConfig> {
        Err(unsupported("a disk has no shared memory"))
    }

    fn set_log_base(&mut self, _: &VhostUserLog, _: File) -> Result<()> {
        Err(unsupported("writes to memory are not logged"))
    }
}

fn unsupported(why: &'static str) -> Error {
    Error::InvalidOperation(why)
}

/// Makes an eventfd nonblocking, so that a write to it never waits for the front end.
fn does_not_wait(eventfd: &File) -> Result<()> {
    let set = rustix::fs::fcntl_getfl(eventfd)
        .and_then(|flags| rustix::fs::fcntl_setfl(eventfd, flags | OFlags::NONBLOCK));
    set.map_err(|errno| Error::ReqHandlerError(errno.into()))
}

/// Number of queues that a disk offers. A driver uses one for each of its processors.
pub(super) const QUEUES: u16 = 16;
