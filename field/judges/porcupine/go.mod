// A second opinion on linearizability, for the tests in field/.
module portolan.dev/field/judges/porcupine

go 1.26.0

require github.com/anishathalye/porcupine v1.3.1
