//! Streams a backup: it is written to a file beside the node's data first, then sent in chunks, so
//! that a slow reader does not hold the state's view open and cannot make memory grow. The stream
//! begins before the file is written, however long that takes: a client waits only a short time for
//! the answer to a call.

use model::{Bytes, limits};
use server::Handle;
use server::backup::BackupError;
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

type Chunk = Result<v1::BackupChunk, Status>;

/// Writes a backup and streams it. A node without a whole state refuses the call, so that the
/// client calls another one; every later failure is the last item of the stream.
pub(super) fn stream(handle: Handle) -> Result<ReceiverStream<Chunk>, Status> {
    if !handle.can_back_up() {
        return Err(failed(&BackupError::NotWhole));
    }
    let (chunks, stream) = mpsc::channel(1);
    tokio::task::spawn_blocking(move || {
        if let Err(error) = write_and_send(&handle, &chunks) {
            // An error here means that the reader has disconnected.
            let _ = chunks.blocking_send(Err(error));
        }
    });
    Ok(ReceiverStream::new(stream))
}

/// Ends early, and without an error, when the reader has disconnected.
fn write_and_send(handle: &Handle, chunks: &mpsc::Sender<Chunk>) -> Result<(), Status> {
    if chunks.is_closed() {
        return Ok(());
    }
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let written = Written { path: server::backup::sending_path(handle.data(), number) };
    let wrote = handle.write_backup(&written.path, &|| !chunks.is_closed());
    wrote.map_err(|error| failed(&error))?;
    let mut file = File::open(&written.path).map_err(|error| unwritable(&error))?;
    let total_bytes = file.metadata().map_err(|error| unwritable(&error))?.len();
    let mut offset = 0;
    while offset < total_bytes {
        let mut bytes = Vec::new();
        let read =
            (&mut file).take(limits::SNAPSHOT_CHUNK_BYTES_MAX as u64).read_to_end(&mut bytes);
        let count = read.map_err(|error| unwritable(&error))? as u64;
        if count == 0 {
            return Err(unwritable(&"the file ended early"));
        }
        let chunk = v1::BackupChunk { offset, bytes: Bytes::from(bytes), total_bytes };
        if chunks.blocking_send(Ok(chunk)).is_err() {
            return Ok(());
        }
        offset += count;
    }
    Ok(())
}

fn failed(error: &BackupError) -> Status {
    match error {
        BackupError::NotWhole => Reason::NotServing.status(error.to_string()),
        BackupError::File(error) => unwritable(error),
    }
}

fn unwritable(cause: &impl ToString) -> Status {
    Reason::DiskFull.status(format!("the backup cannot be written: {}", cause.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use server::Node;
    use server::config::Config;
    use tokio_stream::StreamExt as _;

    #[test]
    fn a_backup_begins_before_its_file_is_written() {
        let data = tempfile::tempdir().unwrap();
        let mut config = Config { data: data.path().join("node"), ..Config::default() };
        config.ports.peer = "127.0.0.1:0".parse().unwrap();
        let node = Node::start(&config).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(1)
            .build()
            .unwrap();
        runtime.block_on(async {
            let handle = node.handle();
            handle.wait_until_current(limits::REQUEST_DEADLINE).await.unwrap();
            // Nothing is written until the only thread for that is free.
            let (free, is_free) = std::sync::mpsc::channel::<()>();
            let busy = tokio::task::spawn_blocking(move || is_free.recv());
            let abandoned = stream(handle.clone()).unwrap();
            let mut chunks = stream(handle.clone()).unwrap();
            drop(abandoned);
            let before = NUMBER.load(Ordering::Relaxed);
            free.send(()).unwrap();
            busy.await.unwrap().unwrap();
            let (mut received, mut total) = (0, 0);
            while let Some(chunk) = chunks.next().await {
                let chunk = chunk.unwrap();
                assert_eq!(chunk.offset, received);
                (received, total) = (received + chunk.bytes.len() as u64, chunk.total_bytes);
            }
            assert!(received > 0 && received == total, "{received} of {total}");
            assert_eq!(NUMBER.load(Ordering::Relaxed), before + 1, "one file, not two");
        });
        drop(runtime);
        node.stop();
    }
}
