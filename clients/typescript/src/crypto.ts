/** Web Crypto of browsers, Deno, workers and Node 20 and newer. */
export const webCrypto: Crypto = globalThis.crypto;
