//! The encoding of messages: protobuf, and a limit to the fields of a message that is decoded.
//!
//! A field may take two bytes, and a hundred when it is decoded. So the fields are counted first,
//! and the memory of a message stays in proportion to its bytes.

use model::limits;
use prost::Message;
use prost::bytes::Buf;
use prost::encoding::{DecodeContext, decode_key, skip_field};
use std::marker::PhantomData;
use tonic::Status;
use tonic::codec::{BufferSettings, DecodeBuf, Decoder};
use tonic_prost::{ProstDecoder, ProstEncoder};

/// Encodes `T`, decodes `U`.
pub(crate) struct Codec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for Codec<T, U> {
    fn default() -> Codec<T, U> {
        Codec(PhantomData)
    }
}

impl<T, U> tonic::codec::Codec for Codec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = ProstEncoder<T>;
    type Decoder = Limited<U>;

    fn encoder(&mut self) -> ProstEncoder<T> {
        ProstEncoder::default()
    }

    fn decoder(&mut self) -> Limited<U> {
        Limited(ProstDecoder::default())
    }
}

/// Refuses messages of more than [`limits::MESSAGE_FIELDS_MAX`] fields.
pub(crate) struct Limited<U>(ProstDecoder<U>);

impl<U: Message + Default> Decoder for Limited<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        // The buffer is contiguous.
        if has_too_many_fields(buffer.chunk()) {
            let max = limits::MESSAGE_FIELDS_MAX;
            return Err(super::Reason::Invalid
                .status(format!("the message has more than {max} fields; send several")));
        }
        self.0.decode(buffer)
    }

    fn buffer_settings(&self) -> BufferSettings {
        self.0.buffer_settings()
    }
}

/// Whether a message has too many fields, each element of a list being one; the fields of a field
/// are not counted: in no request is there a list within a list's element. What is no message is
/// left to the decoder.
fn has_too_many_fields(mut message: &[u8]) -> bool {
    let mut fields = 0;
    while message.has_remaining() {
        let Ok((tag, wire_type)) = decode_key(&mut message) else { return false };
        fields += 1;
        if fields > limits::MESSAGE_FIELDS_MAX {
            return true;
        }
        if skip_field(wire_type, tag, &mut message, DecodeContext::default()).is_err() {
            return false;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grpc::v1;

    #[test]
    fn the_fields_of_a_message_are_limited_before_it_is_decoded() {
        let batch = |steps, guards| {
            let steps = vec![v1::Step::default(); steps];
            let guards = vec![v1::Guard::default(); guards];
            v1::BatchRequest { steps, guards, ..Default::default() }.encode_to_vec()
        };
        let max = limits::TRANSACTION_STEPS_MAX;
        assert!(!has_too_many_fields(&batch(max, max)));
        assert!(!has_too_many_fields(&batch(limits::MESSAGE_FIELDS_MAX, 0)));
        assert!(has_too_many_fields(&batch(limits::MESSAGE_FIELDS_MAX, 1)));
        let put = v1::PutRequest { value: vec![0x1a_u8; 1 << 20].into(), ..Default::default() };
        assert!(!has_too_many_fields(&put.encode_to_vec()), "a value is one field");
        assert!(!has_too_many_fields(&[0xff; 20]), "no message");
    }
}
