package portolan;

/** The server answered, and the answer was an error. The connection can be used further. */
final class ServerError extends Exception {
  private static final long serialVersionUID = 1;

  ServerError(String text) {
    super(text);
  }

  /** The first word, which states what kind of error it is. */
  String code() {
    String text = getMessage();
    int space = text.indexOf(' ');
    return space < 0 ? text : text.substring(0, space);
  }
}
