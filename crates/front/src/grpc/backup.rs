//! Streams a backup: it is written to a file beside the node's data first, then sent in chunks, so
//! that a slow reader does not hold the state's view open and cannot make memory grow.

use model::{Bytes, limits};
use server::Handle;
use std::fs::File;
use std::io::Read as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use wire::grpc::{Reason, v1};

/// Distinguishes the backups of one process.
static NUMBER: AtomicU64 = AtomicU64::new(0);

/// The file of a running backup; dropping this removes it.
struct Written {
    path: PathBuf,
}

impl Drop for Written {
    fn drop(&mut self) {
        // A file that cannot be removed is removed at the node's next start.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Writes a backup and streams it.
pub(super) async fn stream(
    handle: Handle,
) -> Result<ReceiverStream<Result<v1::BackupChunk, Status>>, Status> {
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let path = server::backup::sending_path(handle.data(), number);
    let (chunks, stream) = mpsc::channel(1);
    let write = move || {
        let written = Written { path };
        match handle.write_backup(&written.path) {
            Ok(_) => File::open(&written.path).map_err(|e| failed(&e)).map(|file| (written, file)),
            Err(error) => Err(failed(&error)),
        }
    };
    let (written, file) =
        tokio::task::spawn_blocking(write).await.map_err(|error| failed(&error))??;
    tokio::task::spawn_blocking(move || {
        let _until_sent = written;
        // An error here means that the reader has disconnected.
        let _ = send(file, &chunks);
    });
    Ok(ReceiverStream::new(stream))
}

type Chunks = mpsc::Sender<Result<v1::BackupChunk, Status>>;

fn send(
    mut file: File,
    chunks: &Chunks,
) -> Result<(), mpsc::error::SendError<Result<v1::BackupChunk, Status>>> {
    let total_bytes = match file.metadata() {
        Ok(metadata) => metadata.len(),
        Err(error) => return chunks.blocking_send(Err(failed(&error))),
    };
    let mut offset = 0;
    while offset < total_bytes {
        let mut bytes = Vec::new();
        let read =
            (&mut file).take(limits::SNAPSHOT_CHUNK_BYTES_MAX as u64).read_to_end(&mut bytes);
        match read {
            Ok(0) => return chunks.blocking_send(Err(failed(&"the file ended early"))),
            Ok(count) => {
                let bytes = Bytes::from(bytes);
                chunks.blocking_send(Ok(v1::BackupChunk { offset, bytes, total_bytes }))?;
                offset += count as u64;
            }
            Err(error) => return chunks.blocking_send(Err(failed(&error))),
        }
    }
    Ok(())
}

fn failed(cause: &impl ToString) -> Status {
    Reason::DiskFull.status(format!("the backup cannot be written: {}", cause.to_string()))
}
