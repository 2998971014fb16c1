//! Cryptography of calls, in the form that str0m asks for: ring for hashes and GCM, `aes` for the modes that ring lacks, and
//! dimpl for DTLS.

use std::{fmt, sync::Arc, time::Instant};

use aes::{
    Aes128, Aes256,
    cipher::{Block, BlockCipherEncrypt, KeyInit},
};
use ring::{
    aead::{AES_128_GCM, AES_256_GCM, Aad, Algorithm, LessSafeKey, Nonce, UnboundKey},
    digest, hmac,
};
use str0m::crypto::{
    AeadAes128GcmCipher, AeadAes256GcmCipher, Aes128CmSha1_80Cipher, CryptoError, CryptoProvider,
    Sha1HmacProvider, Sha1Provider, Sha256Provider, SrtpProvider, SupportedAeadAes128Gcm,
    SupportedAeadAes256Gcm, SupportedAes128CmSha1_80,
    dtls::{DtlsCert, DtlsImplError, DtlsInstance, DtlsOutput, DtlsProvider, DtlsVersion, ProtocolVersion},
};

/// The provider for every call.
pub(super) fn provider() -> Arc<CryptoProvider> {
    Arc::new(CryptoProvider {
        srtp_provider: &Provider,
        sha1_hmac_provider: &Provider,
        sha1_provider: &Provider,
        sha256_provider: &Provider,
        dtls_provider: &Provider,
    })
}

/// A new certificate with its key.
pub(super) fn certificate() -> Result<DtlsCert, rcgen::Error> {
    let made = rcgen::generate_simple_self_signed(vec!["voxbridge".to_owned()])?;
    Ok(DtlsCert { certificate: made.cert.der().to_vec(), private_key: made.signing_key.serialize_der() })
}

#[derive(Debug)]
struct Provider;

impl Sha1HmacProvider for Provider {
    fn sha1_hmac(&self, key: &[u8], payloads: &[&[u8]]) -> [u8; 20] {
        let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, key);
        let mut context = hmac::Context::with_key(&key);
        payloads.iter().for_each(|payload| context.update(payload));
        sized(context.sign().as_ref())
    }
}

impl Sha1Provider for Provider {
    fn sha1(&self, data: &[u8]) -> [u8; 20] {
        sized(digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, data).as_ref())
    }
}

impl Sha256Provider for Provider {
    fn sha256(&self, data: &[u8]) -> [u8; 32] {
        sized(digest::digest(&digest::SHA256, data).as_ref())
    }
}

/// A digest as an array of its known length.
fn sized<const BYTES: usize>(digest: &[u8]) -> [u8; BYTES] {
    let mut sized = [0; BYTES];
    sized.copy_from_slice(digest);
    sized
}

impl SrtpProvider for Provider {
    fn aes_128_cm_sha1_80(&self) -> &'static dyn SupportedAes128CmSha1_80 {
        &Self
    }

    fn aead_aes_128_gcm(&self) -> &'static dyn SupportedAeadAes128Gcm {
        &Self
    }

    fn aead_aes_256_gcm(&self) -> &'static dyn SupportedAeadAes256Gcm {
        &Self
    }

    fn srtp_aes_128_ecb_round(&self, key: &[u8], input: &[u8], output: &mut [u8]) {
        ecb_round::<Aes128>(key, input, output);
    }

    fn srtp_aes_256_ecb_round(&self, key: &[u8], input: &[u8], output: &mut [u8]) {
        ecb_round::<Aes256>(key, input, output);
    }
}

/// Encrypts one block (RFC 3711 §4.3.3). The output has room for a second one, which no caller reads.
fn ecb_round<C: BlockCipherEncrypt + KeyInit>(key: &[u8], input: &[u8], output: &mut [u8]) {
    let Ok(cipher) = C::new_from_slice(key) else { return };
    let Ok(mut block) = Block::<C>::try_from(input) else { return };
    cipher.encrypt_block(&mut block);
    output[..input.len()].copy_from_slice(&block);
}

impl SupportedAes128CmSha1_80 for Provider {
    fn create_cipher(&self, key: [u8; 16], _: bool) -> Box<dyn Aes128CmSha1_80Cipher> {
        Box::new(CounterMode(Aes128::new(&key.into())))
    }
}

impl SupportedAeadAes128Gcm for Provider {
    fn create_cipher(&self, key: [u8; 16], _: bool) -> Box<dyn AeadAes128GcmCipher> {
        Box::new(Gcm::new(&AES_128_GCM, &key))
    }
}

impl SupportedAeadAes256Gcm for Provider {
    fn create_cipher(&self, key: [u8; 32], _: bool) -> Box<dyn AeadAes256GcmCipher> {
        Box::new(Gcm::new(&AES_256_GCM, &key))
    }
}

/// AES in counter mode (RFC 3711 §4.1.1).
struct CounterMode(Aes128);

impl fmt::Debug for CounterMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CounterMode")
    }
}

impl Aes128CmSha1_80Cipher for CounterMode {
    fn encrypt(&mut self, iv: &[u8; 16], input: &[u8], output: &mut [u8]) -> Result<(), CryptoError> {
        let mut counter = u128::from_be_bytes(*iv);
        for (input, output) in input.chunks(16).zip(output.chunks_mut(16)) {
            let mut block = counter.to_be_bytes().into();
            self.0.encrypt_block(&mut block);
            for ((out, byte), key) in output.iter_mut().zip(input).zip(block) {
                *out = byte ^ key;
            }
            counter = counter.wrapping_add(1);
        }
        Ok(())
    }

    fn decrypt(&mut self, iv: &[u8; 16], input: &[u8], output: &mut [u8]) -> Result<(), CryptoError> {
        self.encrypt(iv, input, output)
    }
}

/// AES in Galois counter mode (RFC 7714). `None` for a key that ring refuses, which a key of the right length never is.
#[derive(Debug)]
struct Gcm(Option<LessSafeKey>);

impl Gcm {
    fn new(algorithm: &'static Algorithm, key: &[u8]) -> Self {
        Self(UnboundKey::new(algorithm, key).ok().map(LessSafeKey::new))
    }

    fn seal(&self, iv: &[u8; 12], aad: &[u8], input: &[u8], output: &mut [u8]) -> Result<(), CryptoError> {
        let (sealed, tag_place) = output.split_at_mut(input.len());
        sealed.copy_from_slice(input);
        let key = self.0.as_ref().ok_or_else(|| failed("key"))?;
        let nonce = Nonce::assume_unique_for_key(*iv);
        let tag =
            key.seal_in_place_separate_tag(nonce, Aad::from(aad), sealed).map_err(|_| failed("seal"))?;
        tag_place[..tag.as_ref().len()].copy_from_slice(tag.as_ref());
        Ok(())
    }

    fn open(
        &self,
        iv: &[u8; 12],
        aads: &[&[u8]],
        input: &[u8],
        output: &mut [u8],
    ) -> Result<usize, CryptoError> {
        let key = self.0.as_ref().ok_or_else(|| failed("key"))?;
        let aad = aads.concat();
        // The tag needs room too, which the output may lack.
        let mut sealed = input.to_vec();
        let opened = key.open_in_place(Nonce::assume_unique_for_key(*iv), Aad::from(aad), &mut sealed);
        let opened = opened.map_err(|_| failed("open"))?;
        output[..opened.len()].copy_from_slice(opened);
        Ok(opened.len())
    }
}

fn failed(what: &str) -> CryptoError {
    CryptoError::Other(format!("AES-GCM: {what} failed"))
}

/// The traits of both key lengths have the same methods.
macro_rules! gcm_cipher {
    ($cipher:ident) => {
        impl $cipher for Gcm {
            fn encrypt(
                &mut self,
                iv: &[u8; 12],
                aad: &[u8],
                input: &[u8],
                output: &mut [u8],
            ) -> Result<(), CryptoError> {
                self.seal(iv, aad, input, output)
            }

            fn decrypt(
                &mut self,
                iv: &[u8; 12],
                aads: &[&[u8]],
                input: &[u8],
                output: &mut [u8],
            ) -> Result<usize, CryptoError> {
                self.open(iv, aads, input, output)
            }
        }
    };
}

gcm_cipher!(AeadAes128GcmCipher);
gcm_cipher!(AeadAes256GcmCipher);

impl DtlsProvider for Provider {
    fn generate_certificate(&self) -> Option<DtlsCert> {
        certificate().ok()
    }

    fn new_dtls(
        &self,
        cert: &DtlsCert,
        now: Instant,
        version: DtlsVersion,
        mtu: Option<usize>,
    ) -> Result<Box<dyn DtlsInstance>, CryptoError> {
        // With a cookie (the default): an ICE-lite agent never hears that its packets arrive, so that an address that was forged
        // would get the certificate, which is longer than the client's hello.
        let config = dimpl::Config::builder();
        let config = match mtu {
            Some(mtu) => config.mtu(mtu),
            None => config,
        };
        let config = config.build().map_err(|error| CryptoError::Other(format!("DTLS: {error}")))?;
        let (config, cert) = (Arc::new(config), cert.clone());
        Ok(Box::new(Dtls(match version {
            DtlsVersion::Dtls13 => dimpl::Dtls::new_13(config, cert, now),
            DtlsVersion::Auto => dimpl::Dtls::new_auto(config, cert, now),
            _ => dimpl::Dtls::new_12(config, cert, now),
        })))
    }
}

struct Dtls(dimpl::Dtls);

impl fmt::Debug for Dtls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Dtls")
    }
}

impl DtlsInstance for Dtls {
    fn set_active(&mut self, active: bool) {
        self.0.set_active(active);
    }

    fn handle_packet(&mut self, packet: &[u8]) -> Result<(), DtlsImplError> {
        self.0.handle_packet(packet)
    }

    fn poll_output<'a>(&mut self, buf: &'a mut [u8]) -> DtlsOutput<'a> {
        self.0.poll_output(buf)
    }

    fn handle_timeout(&mut self, now: Instant) -> Result<(), DtlsImplError> {
        self.0.handle_timeout(now)
    }

    fn send_application_data(&mut self, data: &[u8]) -> Result<usize, DtlsImplError> {
        self.0.send_application_data(data)
    }

    fn is_active(&self) -> bool {
        self.0.is_active()
    }

    fn protocol_version(&self) -> Option<ProtocolVersion> {
        self.0.protocol_version()
    }

    fn is_closing(&self) -> bool {
        self.0.is_closing()
    }

    fn is_closed(&self) -> bool {
        self.0.is_closed()
    }

    fn close(&mut self) -> Result<(), DtlsImplError> {
        self.0.close()
    }
}
