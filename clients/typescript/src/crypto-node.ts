/** Web Crypto of Node. Node 18 has it in a module only. */
// @ts-ignore: this package is compiled without the types of Node.
import { webcrypto } from "node:crypto";

export const webCrypto: Crypto = webcrypto as Crypto;
