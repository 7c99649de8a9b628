//! One snapshot file at any path: writing it, checking it, reading it through.

use super::format::{
    BLOCK_BYTES, BLOCK_HEADER_BYTES, BlockHeader, FORMAT, Footer, HEAD_FIXED_BYTES, HeadStart,
    decode_head, decode_rows, encode_head, encode_row, head_start,
};
use super::{SnapshotError, SnapshotHead};
use crate::disk::{AnyDisk, AnyFile, check_room};
use crate::state::Read;
use model::Bytes;
use std::path::{Path, PathBuf};

/// Bytes gathered before they are written.
const WRITE_BYTES: usize = 1 << 20;

/// A snapshot or backup file, open for reading. Only its head has been checked.
#[derive(Clone, Debug)]
pub struct SnapshotFile {
    path: PathBuf,
    file: AnyFile,
    head: SnapshotHead,
    head_bytes: u64,
    total_bytes: u64,
}

/// The result of checking a whole file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verified {
    /// Keys.
    pub rows: u64,
    /// Its length.
    pub total_bytes: u64,
}

impl SnapshotFile {
    /// Opens a file and checks its head.
    pub fn open(disk: &AnyDisk, path: &Path) -> Result<Self, SnapshotError> {
        let file = disk.open(path).map_err(|error| SnapshotError::disk(path, error))?;
        Self::of(path, file)
    }

    pub(super) fn of(path: &Path, file: AnyFile) -> Result<Self, SnapshotError> {
        let fail = |error| SnapshotError::disk(path, error);
        let mut fixed = [0; HEAD_FIXED_BYTES];
        let count = file.read_at(0, &mut fixed).map_err(fail)?;
        let damaged = || SnapshotError::damaged(path, 0, "it does not begin as a snapshot does");
        let head_bytes = match head_start(&fixed[..count]) {
            HeadStart::Bytes(bytes) => bytes,
            HeadStart::Damaged => return Err(damaged()),
            HeadStart::Version(found) => {
                return Err(SnapshotError::Version {
                    path: path.display().to_string(),
                    found,
                    known: FORMAT,
                });
            }
        };
        let mut bytes = vec![0; head_bytes];
        let count = file.read_at(0, &mut bytes).map_err(fail)?;
        let head =
            decode_head(&bytes[..count]).filter(|_| count == head_bytes).ok_or_else(damaged)?;
        let total_bytes = file.len_bytes().map_err(fail)?;
        Ok(Self { path: path.to_owned(), file, head, head_bytes: head_bytes as u64, total_bytes })
    }

    /// The head of the snapshot.
    pub fn head(&self) -> &SnapshotHead {
        &self.head
    }

    /// Its length.
    pub fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    pub(super) fn file(&self) -> &AnyFile {
        &self.file
    }

    /// Reads the file through and checks every byte of it. Slow.
    pub fn verify(&self) -> Result<Verified, SnapshotError> {
        self.blocks(&mut |_| Ok(()))
    }

    /// Reads the file through, and returns the rows of each block after checking its checksum. The
    /// file is known to be complete only when this returns. Slow.
    pub fn blocks(
        &self,
        visit: &mut dyn FnMut(Vec<(Bytes, Bytes)>) -> Result<(), SnapshotError>,
    ) -> Result<Verified, SnapshotError> {
        let mut whole = crc32fast::Hasher::new();
        let head = self.read(0, self.head_bytes as usize)?;
        whole.update(&head);
        let mut offset = self.head_bytes;
        let mut rows = 0;
        let mut last_key = Bytes::new();
        loop {
            let damaged = |what: &str| SnapshotError::damaged(&self.path, offset, what);
            let bytes = self.read(offset, BLOCK_HEADER_BYTES)?;
            let header = BlockHeader::decode(&bytes, offset)
                .ok_or_else(|| damaged("there is no valid block header"))?;
            let at = offset + BLOCK_HEADER_BYTES as u64;
            let end = at + u64::from(header.payload_bytes);
            if end > self.total_bytes {
                return Err(damaged("the file ends inside of the block"));
            }
            let payload = Bytes::from(self.read(at, header.payload_bytes as usize)?);
            if crc32fast::hash(&payload) != header.payload_crc {
                return Err(damaged("the block's checksum does not fit"));
            }
            if header.rows == 0 {
                let expected = Footer { rows, bytes_before: offset, crc_before: whole.finalize() };
                if Footer::decode(&payload) != Some(expected) {
                    return Err(damaged("the footer does not fit the blocks before it"));
                }
                if end != self.total_bytes {
                    return Err(damaged("something follows the footer"));
                }
                return Ok(Verified { rows, total_bytes: end });
            }
            whole.update(&bytes);
            whole.update(&payload);
            let found = decode_rows(header.rows, &payload)
                .ok_or_else(|| damaged("the block's rows do not fill it"))?;
            for (key, _) in &found {
                if rows > 0 && *key <= last_key {
                    return Err(damaged("the keys do not ascend"));
                }
                last_key = key.clone();
                rows += 1;
            }
            visit(found)?;
            offset = end;
        }
    }

    /// The bytes there; an error if the file is too short.
    fn read(&self, offset: u64, len: usize) -> Result<Vec<u8>, SnapshotError> {
        let mut bytes = vec![0; len];
        let count = self
            .file
            .read_at(offset, &mut bytes)
            .map_err(|error| SnapshotError::disk(&self.path, error))?;
        if count < len {
            return Err(SnapshotError::damaged(&self.path, offset, "the file is cut short"));
        }
        Ok(bytes)
    }
}

/// Writes a view to a file, durably except for its name. Leaves `reserve_bytes` of the disk free.
/// On an error the partial file stays. Returns its length. Slow.
pub fn write_file(
    disk: &AnyDisk,
    path: &Path,
    head: &SnapshotHead,
    view: &impl Read,
    reserve_bytes: u64,
) -> Result<u64, SnapshotError> {
    write_file_while(disk, path, head, view, reserve_bytes, &|| true)
}

/// The same, and [`SnapshotError::Unwanted`] if a block is due and the file is not wanted then.
pub fn write_file_while(
    disk: &AnyDisk,
    path: &Path,
    head: &SnapshotHead,
    view: &impl Read,
    reserve_bytes: u64,
    is_wanted: &dyn Fn() -> bool,
) -> Result<u64, SnapshotError> {
    let fail = |error| SnapshotError::disk(path, error);
    let file = disk.create(path).map_err(fail)?;
    let folder = path.parent().filter(|folder| *folder != Path::new(""));
    let mut output = Output {
        disk,
        folder: folder.unwrap_or(Path::new(".")),
        reserve_bytes,
        file: &file,
        buffer: encode_head(head),
        written: 0,
        whole: crc32fast::Hasher::new(),
    };
    let mut rows = 0;
    let mut block = Vec::with_capacity(2 * BLOCK_BYTES);
    let mut block_rows = 0;
    let mut failed = None;
    let mut wanted = true;
    view.scan(&[], None, &mut |key, value| {
        encode_row(&key, &value, &mut block);
        block_rows += 1;
        rows += 1;
        if block.len() < BLOCK_BYTES {
            return true;
        }
        wanted = is_wanted();
        if !wanted {
            return false;
        }
        let done = output.block(block_rows, &block);
        block_rows = 0;
        // Releases the memory of a large row.
        block.truncate(0);
        block.shrink_to(2 * BLOCK_BYTES);
        failed = done.err();
        failed.is_none()
    })?;
    if !wanted {
        return Err(SnapshotError::Unwanted { path: path.display().to_string() });
    }
    if let Some(error) = failed {
        return Err(fail(error));
    }
    let finish = |output: &mut Output<'_>| {
        if block_rows > 0 {
            output.block(block_rows, &block)?;
        }
        output.flush()?;
        let footer = Footer {
            rows,
            bytes_before: output.written,
            crc_before: output.whole.clone().finalize(),
        };
        output.block(0, &footer.encode())?;
        output.flush()?;
        file.sync_data()?;
        Ok(output.written)
    };
    finish(&mut output).map_err(fail)
}

/// A file being written from front to end.
struct Output<'a> {
    disk: &'a AnyDisk,
    folder: &'a Path,
    reserve_bytes: u64,
    file: &'a AnyFile,
    buffer: Vec<u8>,
    written: u64,
    /// The checksum of everything written.
    whole: crc32fast::Hasher,
}

impl Output<'_> {
    fn block(&mut self, rows: u32, payload: &[u8]) -> Result<(), crate::disk::DiskError> {
        let offset = self.written + self.buffer.len() as u64;
        let header = BlockHeader::of(rows, payload).encode(offset);
        self.buffer.extend_from_slice(&header);
        self.buffer.extend_from_slice(payload);
        if self.buffer.len() >= WRITE_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), crate::disk::DiskError> {
        check_room(self.disk, self.folder, self.buffer.len() as u64, self.reserve_bytes)?;
        self.file.write_at(self.written, &self.buffer)?;
        self.whole.update(&self.buffer);
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        self.buffer.shrink_to(2 * WRITE_BYTES);
        Ok(())
    }
}
