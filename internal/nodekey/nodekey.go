// Package nodekey is how an agent shows that a node is its own.
//
// A Key is an ed25519 key that never leaves its agent; the node's record holds the public part.
// With it the agent signs its registrations (SignRegistration, CheckRegistration) and answers a
// gateway that has called it (Answer, CheckAnswer). A signature costs some 50 µs, which is too much
// for every heartbeat. So each start of an agent also has a secret, the session: the record holds
// its hash, and the agent sends it in the Header of its calls (Proves).
//
//	key, err := nodekey.New(seed)
//	node.Key, node.Session = key.Public(), nodekey.Hash(key.Session())
//	signature := key.SignRegistration(&node)
//
// Each signed message begins with its purpose, so that no signature can stand for another. Neither
// the record nor a signature lets a reader pass for the agent. A reader of the traffic can take the
// session, as nothing is encrypted: it is good until the agent starts anew.
//
// The package keeps no state and reads no files. Packages agent and gateway call it.
package nodekey

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"

	"github.com/plimsoll-dev/plimsoll"
)

// Header is the HTTP header in which an agent sends its session.
const Header = "Plimsoll-Node-Session"

// Sizes in bytes.
const (
	SeedSize    = ed25519.SeedSize
	NonceSize   = 32
	sessionSize = 32
)

// Purposes of signatures.
const (
	forRegistration = "plimsoll node registration 1"
	forAnswer       = "plimsoll node answer 1"
)

var encoding = base64.RawURLEncoding.Strict()

// Key is the key of a node's agent, and the session of this start of it.
type Key struct {
	private ed25519.PrivateKey
	session string
}

// New returns the key that is made of a seed, with a session of its own.
func New(seed []byte) (*Key, error) {
	if len(seed) != SeedSize {
		return nil, plimsoll.Errorf(plimsoll.CodeCorrupt, "a node's key has %d bytes, not %d", SeedSize, len(seed))
	}
	return &Key{private: ed25519.NewKeyFromSeed(seed), session: encoding.EncodeToString(Random(sessionSize))}, nil
}

// Random returns so many random bytes.
func Random(n int) []byte {
	data := make([]byte, n)
	_, _ = rand.Read(data) // it never fails: without randomness the process ends
	return data
}

// Public returns the public key, as it stands in the node's record.
func (k *Key) Public() string {
	return encoding.EncodeToString(k.private.Public().(ed25519.PublicKey)) // what such a key has
}

// Session returns the secret that goes into Header.
func (k *Key) Session() string { return k.session }

// Hash returns the hash of a session, as it stands in the node's record.
func Hash(session string) string {
	sum := sha256.Sum256([]byte(session))
	return encoding.EncodeToString(sum[:])
}

// Proves reports whether a session is the one of which a record holds the hash. It takes as long
// whether it is or not.
func Proves(session, hash string) bool {
	if len(session) != encoding.EncodedLen(sessionSize) {
		return false
	}
	return subtle.ConstantTimeCompare([]byte(Hash(session)), []byte(hash)) == 1
}

// SignRegistration signs the registration of a node.
func (k *Key) SignRegistration(node *plimsoll.Node) []byte {
	return ed25519.Sign(k.private, registration(node))
}

// CheckRegistration reports whether a node's own key has signed its registration.
func CheckRegistration(node *plimsoll.Node, signature []byte) error {
	if !verify(node.Key, registration(node), signature) {
		return plimsoll.Errorf(
			plimsoll.CodeDenied,
			"the registration of node %q is not signed with its key; it is not from the agent that has the key",
			node.ID,
		)
	}
	return nil
}

// Answer answers a gateway's nonce.
func (k *Key) Answer(node string, nonce []byte) []byte {
	return ed25519.Sign(k.private, answer(node, nonce))
}

// CheckAnswer reports whether the agent of a node has answered a nonce.
func CheckAnswer(node, public string, nonce, signature []byte) bool {
	return verify(public, answer(node, nonce), signature)
}

func verify(public string, message, signature []byte) bool {
	key, err := encoding.DecodeString(public)
	return err == nil && len(key) == ed25519.PublicKeySize && ed25519.Verify(key, message, signature)
}

func registration(node *plimsoll.Node) []byte {
	message := texts(forRegistration, node.ID, node.Address, node.Session)
	return binary.BigEndian.AppendUint64(message, node.Incarnation)
}

func answer(node string, nonce []byte) []byte { return texts(forAnswer, node, string(nonce)) }

// texts puts texts one behind the other so that they cannot be taken apart in another way.
func texts(all ...string) []byte {
	var message []byte
	for _, text := range all {
		message = binary.BigEndian.AppendUint32(message, uint32(len(text)))
		message = append(message, text...)
	}
	return message
}
