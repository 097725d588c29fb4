package postrider

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Tolerance is how far the sender's clock may be from ours, either way, unless a Verifier says otherwise.
const Tolerance = 5 * time.Minute

const signaturesMax = 32

// Why a webhook is not to be trusted.
const (
	MissingHeader       = "missing_header"
	MalformedHeader     = "malformed_header"
	TooOld              = "too_old"
	TooNew              = "too_new"
	NoMatchingSignature = "no_matching_signature"
)

// VerificationError says why a webhook is not to be trusted. It holds neither a secret nor the expected signature.
type VerificationError struct {
	// Code is one of the constants above.
	Code    string
	message string
}

func (e *VerificationError) Error() string { return "postrider: " + e.message }

// Verified is what a webhook that was verified says of itself.
type Verified struct {
	// ID is webhook-id: the same for each attempt of a delivery. Use it to recognise a repeat.
	ID string
	// Timestamp is when this attempt was made.
	Timestamp time.Time
}

// Verify says whether one of the secrets (whsec_…, or whpk_… for ed25519) has signed exactly this body at about this
// time. Give it the raw body, and both secrets while one replaces the other.
func Verify(body []byte, header http.Header, secrets ...string) (*Verified, error) {
	return Verifier{Secrets: secrets}.Verify(body, header)
}

// Verifier verifies with settings of your own.
type Verifier struct {
	Secrets []string
	// Tolerance is how far the sender's clock may be from ours; 5 minutes where it is zero.
	Tolerance time.Duration
	// Now is our clock; time.Now where it is nil.
	Now func() time.Time
}

var (
	// With a dot in the id, the same signed text could be read as another id, time and body.
	idPattern        = regexp.MustCompile(`^[\x21-\x2d\x2f-\x7e]+$`)
	timestampPattern = regexp.MustCompile(`^[0-9]{1,15}$`)
	signaturePattern = regexp.MustCompile(`^[\x21-\x7e]*,[\x21-\x7e]*$`)
)

// Verify verifies one webhook. The error is a *VerificationError, or says that a secret is malformed.
func (v Verifier) Verify(body []byte, header http.Header) (*Verified, error) {
	id, err := only(header, "webhook-id")
	if err != nil {
		return nil, err
	}
	timestamp, err := only(header, "webhook-timestamp")
	if err != nil {
		return nil, err
	}
	list, err := only(header, "webhook-signature")
	if err != nil {
		return nil, err
	}
	if !idPattern.MatchString(id) {
		return nil, malformed("webhook-id")
	}
	sent, err := v.checkTime(timestamp)
	if err != nil {
		return nil, err
	}
	signatures := strings.Split(list, " ")
	for _, signature := range signatures {
		if len(signatures) > signaturesMax || !signaturePattern.MatchString(signature) {
			return nil, malformed("webhook-signature")
		}
	}
	message := append([]byte(id+"."+timestamp+"."), body...)
	matches := false
	for _, secret := range v.Secrets {
		version, isSignature, err := verifyKey(secret)
		if err != nil {
			return nil, err
		}
		for _, signature := range signatures {
			if !strings.HasPrefix(signature, version) {
				continue
			}
			if bytes, isBase64 := decodeBase64(signature[len(version):]); isBase64 && isSignature(bytes, message) {
				matches = true
			}
		}
	}
	if !matches {
		return nil, &VerificationError{NoMatchingSignature, "no signature of the webhook was made with a known secret"}
	}
	return &Verified{id, sent}, nil
}

func (v Verifier) checkTime(timestamp string) (time.Time, error) {
	seconds, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil || !timestampPattern.MatchString(timestamp) {
		return time.Time{}, malformed("webhook-timestamp")
	}
	tolerance, now := v.Tolerance, time.Now()
	if tolerance == 0 {
		tolerance = Tolerance
	}
	if v.Now != nil {
		now = v.Now()
	}
	age := now.Unix() - seconds
	if age > int64(tolerance/time.Second) {
		return time.Time{}, &VerificationError{TooOld, "the webhook was signed too long ago"}
	}
	if -age > int64(tolerance/time.Second) {
		return time.Time{}, &VerificationError{TooNew, "the webhook was signed in the future"}
	}
	return time.Unix(seconds, 0), nil
}

// verifyKey gives the version of the signatures that a secret verifies, and what verifies one.
func verifyKey(secret string) (string, func(signature, message []byte) bool, error) {
	secret = strings.TrimSpace(secret)
	switch {
	case strings.HasPrefix(secret, "whsec_"):
		key, isBase64 := decodeBase64(padded(secret[len("whsec_"):]))
		if !isBase64 || len(key) < 24 || len(key) > 64 {
			return "", nil, errors.New("postrider: a whsec_ secret holds 24 to 64 bytes, in base64")
		}
		return "v1,", func(signature, message []byte) bool {
			mac := hmac.New(sha256.New, key)
			mac.Write(message)
			return subtle.ConstantTimeCompare(mac.Sum(nil), signature) == 1
		}, nil
	case strings.HasPrefix(secret, "whpk_"):
		key, isBase64 := decodeBase64(padded(secret[len("whpk_"):]))
		if !isBase64 || len(key) != ed25519.PublicKeySize {
			return "", nil, errors.New("postrider: a whpk_ key holds 32 bytes, in base64")
		}
		return "v1a,", func(signature, message []byte) bool {
			return ed25519.Verify(ed25519.PublicKey(key), message, signature)
		}, nil
	case strings.HasPrefix(secret, "whsk_"):
		return "", nil, errors.New("postrider: a whsk_ secret signs; a receiver needs the subscription's public key (whpk_…)")
	}
	return "", nil, errors.New("postrider: a secret begins with whsec_ (HMAC-SHA256) or whpk_ (ed25519)")
}

func only(header http.Header, name string) (string, error) {
	values := header.Values(name)
	if len(values) > 1 {
		return "", malformed(name)
	}
	if len(values) == 0 || values[0] == "" {
		return "", &VerificationError{MissingHeader, "the header " + name + " is missing"}
	}
	return values[0], nil
}

func malformed(name string) error {
	return &VerificationError{MalformedHeader, "the header " + name + " is malformed"}
}

// padded adds the padding that people leave out when they copy a secret.
func padded(text string) string {
	text = strings.TrimRight(text, "=")
	return text + strings.Repeat("=", (4-len(text)%4)%4)
}

// decodeBase64 takes canonical base64 only. The strict decoder of the standard library still skips line ends.
func decodeBase64(text string) ([]byte, bool) {
	bytes, err := base64.StdEncoding.Strict().DecodeString(text)
	return bytes, err == nil && base64.StdEncoding.EncodeToString(bytes) == text
}
