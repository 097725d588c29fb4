package postrider

import (
	"encoding/json"
	"fmt"
)

// Secret is a text that no log shows by accident: fmt and encoding/json write it masked. Reveal gives the text.
type Secret string

const masked = "[secret]"

// Reveal gives the secret itself.
func (s Secret) Reveal() string { return string(s) }

// String gives a mask.
func (s Secret) String() string { return masked }

// GoString gives a mask.
func (s Secret) GoString() string { return masked }

// Format writes a mask, whatever the verb is.
func (s Secret) Format(state fmt.State, _ rune) { _, _ = state.Write([]byte(masked)) }

// MarshalJSON writes a mask. The client sends secrets by another way.
func (s Secret) MarshalJSON() ([]byte, error) { return json.Marshal(masked) }
