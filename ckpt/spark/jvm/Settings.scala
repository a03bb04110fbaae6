package ckpt.spark

import org.apache.spark.SparkException
import org.apache.spark.sql.execution.streaming.state.StateStoreConf

/** What the session configuration says about this provider; executors find it in `StateStoreConf.sqlConfs`. */
object Settings {
  private val Prefix = "spark.sql.streaming.stateStore.ckpt."
  val Address: String = Prefix + "address"
  val Python: String = Prefix + "python"
  private val FromEnvironment = "env:"

  def sidecar(conf: StateStoreConf): SidecarSettings =
    SidecarSettings(address(conf), conf.sqlConfs.getOrElse(Python, "python3"))

  /** The backend's address; `env:NAME` keeps one with secrets out of what Spark shows of its configuration. */
  private def address(conf: StateStoreConf): String = {
    val text = conf.sqlConfs.getOrElse(Address, throw new SparkException(
      s"the ckpt state store needs the address of a backend: set $Address, or use ckpt.spark.configure()"))
    if (!text.startsWith(FromEnvironment)) text
    else {
      val name = text.drop(FromEnvironment.length)
      Option(System.getenv(name)).filter(_.nonEmpty).getOrElse(throw new SparkException(
        s"$Address is $text, but the environment variable $name is not set on this executor; " +
          "set it on every executor before its JVM starts"))
    }
  }
}
