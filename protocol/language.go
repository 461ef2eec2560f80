package protocol

import (
	"strconv"
	"strings"
)

// Language says what a peer is written in; Java lists it in its connection tables.
type Language uint8

// The languages that the protocol knows, with their numbers in the binary header.
const (
	LanguageJava Language = iota
	LanguageCPP
	LanguageDotNet
	LanguagePython
	LanguageDelphi
	LanguageErlang
	LanguageRuby
	LanguageOther
	LanguageHTTP
	LanguageGo
	LanguagePHP
	LanguageOMS
	LanguageRust
	LanguageNodeJS
)

var languageNames = [...]string{
	"JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY", "OTHER", "HTTP", "GO", "PHP", "OMS", "RUST", "NODE_JS",
}

// String is the name in the JSON header.
func (l Language) String() string {
	if int(l) < len(languageNames) {
		return languageNames[l]
	}
	return languageNames[LanguageOther]
}

// languageOf is the language of a name or a number in text; LanguageOther for one that nobody knows.
func languageOf(text []byte) Language {
	for i, name := range languageNames {
		if string(text) == name {
			return Language(i)
		}
	}
	if n, ok := atoi(text); ok {
		return languageNumber(n)
	}
	return LanguageOther
}

func languageNumber(n int64) Language {
	if n < 0 || n >= int64(len(languageNames)) {
		return LanguageOther
	}
	return Language(n)
}

// MarshalJSON writes the name.
func (l Language) MarshalJSON() ([]byte, error) { return strconv.AppendQuote(nil, l.String()), nil }

// UnmarshalJSON reads a name or a number.
func (l *Language) UnmarshalJSON(data []byte) error {
	*l = languageOf([]byte(strings.Trim(string(data), `"`)))
	return nil
}
